# attentiond: build, test, run.  `make help` lists what there is.
VERSION  := 0.1.0
BUILD    ?= build
ifeq ($(origin CC),default)
CC       := gcc
endif
ifeq ($(origin CXX),default)
CXX      := g++
endif
PYTHON   ?= /usr/bin/python3
PREFIX   ?= /usr/local
SAN      ?=
OPT      ?= -O2
LTO      ?= $(if $(SAN),,1)
MARCH    ?=
V        ?= 0
Q        := $(if $(filter 1,$(V)),,@)

PKGS     := libmicrohttpd jansson openblas libdeflate libzstd
WARN     := -Wall -Wextra -Wpedantic -Wshadow -Wconversion $(if $(CI),-Werror)
COMMON   := $(OPT) -g $(MARCH) $(WARN) $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all \
            -fno-omit-frame-pointer) -I. -MMD -MP -ffp-contract=off
# The objects hold both kinds of code: the binary is optimised as a whole, tests link fast.
# Only gcc writes such objects.
GNU      := Free Software Foundation
BOTH_GCC := $(and $(findstring $(GNU),$(shell $(CC) --version 2>/dev/null)), \
              $(findstring $(GNU),$(shell $(CXX) --version 2>/dev/null)))
WITH_LTO := $(and $(BOTH_GCC),$(filter 1,$(LTO)))
FAT      := $(if $(WITH_LTO),-flto=auto -ffat-lto-objects)
WHOLE    := $(if $(WITH_LTO),-flto=auto $(OPT),-fno-lto)
CFLAGS   += -std=c11 -D_GNU_SOURCE $(COMMON)
CXXFLAGS += -std=c++17 $(COMMON)
LDFLAGS  += $(if $(SAN),-fsanitize=$(SAN))
LDLIBS    = $(shell pkg-config --libs $(PKGS)) -lm -lpthread -lstdc++

CORE_SRC   := $(wildcard core/*.c)
API_SRC    := $(wildcard api/*.c)
API_CXX    := $(wildcard api/*.cc)
SERVER_SRC := $(wildcard server/*.c)
ASSETS     := $(BUILD)/gen/api_assets.c

CORE_OBJ   := $(CORE_SRC:%.c=$(BUILD)/obj/%.o)
API_OBJ    := $(API_SRC:%.c=$(BUILD)/obj/%.o) $(API_CXX:%.cc=$(BUILD)/obj/%.o) \
              $(BUILD)/obj/gen/api_assets.o
SERVER_OBJ := $(SERVER_SRC:%.c=$(BUILD)/obj/%.o)
LIB_OBJ    := $(CORE_OBJ) $(API_OBJ) $(filter-out %/srv_main.o,$(SERVER_OBJ))

TEST_SUP   := $(wildcard tests/support/*.c)
TEST_HEADS := $(wildcard tests/support/*.h)
TEST_BIN   := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/core/test_*.c \
              tests/api/test_*.c tests/server/test_*.c))

JOBS     := $(shell nproc)

.DEFAULT_GOAL := help
.PHONY: tests help deps deps-ci build run test demo clean unit http extend cases layers format lint asan tsan \
        contract fuzz container bench bench-peers bench-audit readme numbers-test test-exhaustive \
        binary-test
.SECONDARY:

help: ## list the targets
	@grep -hE '^[a-z][a-z-]*:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/; s/$$(PORT)/$(PORT)/' | sort | column -t -s "$$(printf '\t')"

build: $(BUILD)/attentiond ## build $(BUILD)/attentiond (needs neither network nor root)

$(BUILD)/attentiond: $(CORE_OBJ) $(API_OBJ) $(SERVER_OBJ)
	@echo "  LINK  $@"
	$(Q)$(CC) $(WHOLE) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D); echo "  CC    $<"
	$(Q)$(CC) $(CFLAGS) $(FAT) -c -o $@ $<

$(BUILD)/obj/%.o: %.cc
	@mkdir -p $(@D); echo "  CXX   $<"
	$(Q)$(CXX) $(CXXFLAGS) $(FAT) -c -o $@ $<

$(BUILD)/obj/gen/%.o: $(BUILD)/gen/%.c
	@mkdir -p $(@D); echo "  CC    $<"
	$(Q)$(CC) $(CFLAGS) -c -o $@ $<

$(ASSETS): scripts/assets.sh openapi.yaml $(wildcard examples/*.json)
	@mkdir -p $(@D)
	$(Q)sh scripts/assets.sh openapi.yaml examples > $@

$(BUILD)/tests/%: tests/%.c $(TEST_SUP) $(TEST_HEADS) $(LIB_OBJ)
	@mkdir -p $(@D); echo "  TEST  $@"
	$(Q)$(CC) $(CFLAGS) -fno-lto -Itests/support -o $@ $< $(TEST_SUP) $(LIB_OBJ) $(LDFLAGS) $(LDLIBS) -lcriterion

tests: $(TEST_BIN)

unit: $(TEST_BIN) ## the Criterion tests alone
	@failed=; for t in $(TEST_BIN); do echo "== $$t"; $$t || failed="$$failed $$t"; done; \
	[ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

# ---- packages ------------------------------------------------------------------------------
DEPS     := build-essential pkg-config libmicrohttpd-dev libjansson-dev libopenblas-dev \
            libdeflate-dev libzstd-dev \
            libcriterion-dev python3 python3-numpy python3-venv curl
DEPS_CI  := clang clang-format clang-tidy libclang-rt-14-dev buildah podman runc mmdebstrap \
            catatonit git $(if $(shell command -v node),,nodejs) $(if $(shell command -v npm),,npm)

deps: ## install the Debian packages that building and testing need (root or sudo)
	@sh scripts/deps.sh $(DEPS)

deps-ci: deps ## the packages of the slower suites as well
	@sh scripts/deps.sh $(DEPS_CI)

# ---- running --------------------------------------------------------------------------------
PORT     ?= $(if $(ATTENTIOND_PORT),$(ATTENTIOND_PORT),8080)

run: deps ## install what is missing, build, start on 127.0.0.1:$(PORT)
	@$(MAKE) --no-print-directory -j$(JOBS) build
	@sh scripts/run.sh $(BUILD)/attentiond $(PORT)

demo: deps ## send the examples through a running server (or one of its own) and show the answers
	@$(MAKE) --no-print-directory -j$(JOBS) build
	@$(PYTHON) scripts/demo.py --binary $(BUILD)/attentiond --port $(PORT)

# ---- tests ----------------------------------------------------------------------------------

ATTENTIOND = $(BUILD)/attentiond
RANDOM_COUNT ?= 500
SEED     ?= 20261129

test: deps ## install what is missing, build, run every fast test
	@$(MAKE) --no-print-directory -j$(JOBS) build tests
	@$(MAKE) --no-print-directory unit numbers-test http

http: build ## the tests that speak HTTP with the binary
	@PYTHON=$(PYTHON) sh scripts/http.sh $(ATTENTIOND) $(RANDOM_COUNT) $(SEED)

extend: build ## add what CONTRIBUTING.md adds, in a copy, and ask it
	@$(PYTHON) tests/http/run_contributing.py $(ATTENTIOND) && \
	    $(PYTHON) tests/http/run_position_kind.py $(ATTENTIOND)

COUNT    ?= 10000000
$(BUILD)/tests/exhaustive/numbers: tests/exhaustive/numbers.cc $(API_CXX:%.cc=$(BUILD)/obj/%.o)
	@mkdir -p $(@D); echo "  TEST  $@"
	$(Q)$(CXX) $(CXXFLAGS) -fno-lto -o $@ $(filter-out %.h,$^) $(LDFLAGS) -lpthread

numbers-test: $(BUILD)/tests/exhaustive/numbers ## a sample of test-exhaustive
	@$< --step 4093 --count 100000

test-exhaustive: $(BUILD)/tests/exhaustive/numbers ## all 2^32 float32 and COUNT float64, written and read (minutes)
	@$< --count $(COUNT)

binary-test: build ## safetensors both ways with the package of PyPI, in a virtual environment of its own
	@$(PYTHON) tests/http/run_safetensors.py $(ATTENTIOND) --venv $(BUILD)/venv-safetensors

CASES    ?= ../shared/cases
cases: build ## the shared cases, when that folder is there
	@if [ -d $(CASES) ]; then \
	    $(PYTHON) tests/http/run_cases.py $(ATTENTIOND) $(CASES)/forward.jsonl $(CASES)/onnx.jsonl \
	        $(CASES)/torch.jsonl $(CASES)/audit.jsonl && \
	    $(PYTHON) tests/http/serving_cases.py $(ATTENTIOND) $(CASES)/serving.jsonl; \
	else echo "no $(CASES): skipped"; fi

layers: build ## prove that server -> api -> core holds
	@sh scripts/layers.sh $(BUILD)

C_FILES  := $(wildcard core/*.[ch] core/*.inc api/*.[ch] api/*.cc server/*.[ch] \
            tests/*/*.[ch])

format: ## format the C sources
	clang-format -i $(C_FILES)

TIDY_FLAGS = -D_GNU_SOURCE -I. $(shell pkg-config --cflags $(PKGS))

lint: ## formatting and static analysis, warnings as errors
	@clang-format --dry-run --Werror $(C_FILES)
	@printf "%s\n" $(CORE_SRC) $(API_SRC) $(API_CXX) $(SERVER_SRC) | xargs -n 1 -P $(JOBS) sh -c \
	    'case $$0 in *.cc) std=c++17 ;; *) std=c11 ;; esac; \
	    clang-tidy --quiet "$$0" -- -std=$$std $(TIDY_FLAGS) 2>/dev/null'
	sh scripts/lint.sh

asan: deps ## every fast test under AddressSanitizer and UndefinedBehaviorSanitizer
	@$(MAKE) --no-print-directory -j$(JOBS) build tests BUILD=build/asan \
	    SAN=address,undefined OPT=-O1
	@sh scripts/asan.sh $(MAKE) --no-print-directory unit http BUILD=build/asan \
	    SAN=address,undefined OPT=-O1 RANDOM_COUNT=100

tsan: deps ## the server under ThreadSanitizer and load
	@$(MAKE) --no-print-directory -j$(JOBS) build BUILD=build/tsan SAN=thread OPT=-O1
	@$(PYTHON) tests/load/run_tsan.py build/tsan/attentiond

contract: build ## lint openapi.yaml and hold every answer against it (npm)
	@sh scripts/contract.sh $(ATTENTIOND)

FUZZ_SECONDS ?= 20
fuzz: ## fuzz the reading code for FUZZ_SECONDS a target (clang)
	@sh scripts/fuzz.sh $(FUZZ_SECONDS)

container: ## build the image and run it as it is meant to be run (root)
	@bash scripts/container-check.sh .

BENCH_COUNT ?= 6
bench-audit: build ## how often the auditor finds the first wrong object and its cause (minutes)
	@$(PYTHON) bench/bench_audit.py $(ATTENTIOND) --count $(BENCH_COUNT) > bench/AUDIT.md.new && \
	    mv bench/AUDIT.md.new bench/AUDIT.md && cat bench/AUDIT.md

bench: build ## what is measured, against which peer, in one run
	@sh bench/run.sh $(ATTENTIOND) | tee bench/RESULTS.md

PEERS    ?= $(BUILD)/peers
bench-peers: build ## the same, and against onnxruntime, PyTorch and FastAPI (PyPI, Debian 13; wrk)
	@sh scripts/deps.sh wrk mmdebstrap python3-venv
	@sh bench/peers/setup.sh $(PEERS)
	@sh bench/run.sh $(ATTENTIOND) $(PEERS) | tee bench/RESULTS.md

readme: build ## put --help into README's section on options
	@$(PYTHON) scripts/readme.py $(ATTENTIOND)

clean: ## remove what was built
	rm -rf $(BUILD)

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

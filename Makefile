# attentiond: build, test, run.  `make help` lists what there is.
VERSION  := 0.1.0
BUILD    ?= build
CC       ?= gcc
CXX      ?= g++
PYTHON   ?= /usr/bin/python3
PREFIX   ?= /usr/local
SAN      ?=
OPT      ?= -O2
MARCH    ?=
V        ?= 0
Q        := $(if $(filter 1,$(V)),,@)

PKGS     := libmicrohttpd jansson openblas
WARN     := -Wall -Wextra -Wpedantic -Wshadow -Wconversion $(if $(CI),-Werror)
COMMON   := $(OPT) -g $(MARCH) $(WARN) $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all \
            -fno-omit-frame-pointer) -I. -MMD -MP -ffp-contract=off
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
TEST_BIN   := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/core/test_*.c \
              tests/api/test_*.c tests/server/test_*.c))

.DEFAULT_GOAL := help
.PHONY: help deps build run test demo clean unit
.SECONDARY:

help: ## list the targets
	@grep -hE '^[a-z][a-z-]*:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | column -t -s "$$(printf '\t')"

build: $(BUILD)/attentiond ## build $(BUILD)/attentiond (needs neither network nor root)

$(BUILD)/attentiond: $(CORE_OBJ) $(API_OBJ) $(SERVER_OBJ)
	@echo "  LINK  $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D); echo "  CC    $<"
	$(Q)$(CC) $(CFLAGS) -c -o $@ $<

$(BUILD)/obj/%.o: %.cc
	@mkdir -p $(@D); echo "  CXX   $<"
	$(Q)$(CXX) $(CXXFLAGS) -c -o $@ $<

$(BUILD)/obj/gen/%.o: $(BUILD)/gen/%.c
	@mkdir -p $(@D); echo "  CC    $<"
	$(Q)$(CC) $(CFLAGS) -c -o $@ $<

$(ASSETS): scripts/assets.sh openapi.yaml $(wildcard examples/*.json)
	@mkdir -p $(@D)
	$(Q)sh scripts/assets.sh openapi.yaml examples > $@

$(BUILD)/tests/%: tests/%.c $(TEST_SUP) $(LIB_OBJ)
	@mkdir -p $(@D); echo "  TEST  $@"
	$(Q)$(CC) $(CFLAGS) -Itests/support -o $@ $< $(TEST_SUP) $(LIB_OBJ) $(LDFLAGS) $(LDLIBS) -lcriterion

unit: $(TEST_BIN) ## the Criterion tests alone
	@set -e; for t in $(TEST_BIN); do echo "== $$t"; $$t; done

clean: ## remove what was built
	rm -rf $(BUILD)

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

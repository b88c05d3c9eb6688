-- small.lua - wrk asks for one small layer again and again: T = 8, d_model = 16, causal.
-- Not here: large requests (bench_http.py).
-- usage: wrk -t2 -c64 -d5s --latency -s bench/small.lua http://127.0.0.1:8080/v1/attention
local function matrix(rows, columns)
    local lines = {}
    for r = 1, rows do
        local line = {}
        for c = 1, columns do
            line[c] = string.format("%.6f", math.random() * 4 - 2)
        end
        lines[r] = "[" .. table.concat(line, ",") .. "]"
    end
    return "[" .. table.concat(lines, ",") .. "]"
end

math.randomseed(8)
local W = matrix(16, 16)
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"dtype":"float32","masks":{"causal":true},"inputs":{"X":' .. matrix(8, 16) ..
    '},"weights":{"W_Q":' .. W .. ',"W_K":' .. W .. ',"W_V":' .. W .. ',"W_O":' .. W .. "}}"

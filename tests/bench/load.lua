-- The load: POST with a 300-byte JSON body. Keys are fresh (a random prefix and a count), or, where
-- KEYS is set, the numbers 1 to KEYS again and again.
local body = '{"amount":12345,"currency":"eur","customer":"cus_0123456789","description":"A payment for the order 1234567890 with a text long enough to be about three hundred bytes in total and some more","card":{"number":"4242424242424242","exp":"12/30","cvc":"123"},"metadata":{"order":"1234567890","channel":"web"}}'
local keys = tonumber(os.getenv("KEYS") or "0")
local n, prefix, head, tail = 0, "", "", "\r\n\r\n" .. body

function init(_)
  local file = io.open("/proc/sys/kernel/random/uuid")
  prefix = keys > 0 and "replayed-" or file:read("*l"):sub(1, 18) .. "-"
  file:close()
  head = "POST " .. (os.getenv("TARGET") or "/v1/payments") ..
    " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: " ..
    #body .. "\r\nIdempotency-Key: "
end

function request()
  n = n + 1
  if keys > 0 and n > keys then n = 1 end
  return head .. prefix .. n .. tail
end

function done(summary, latency, _)
  local e = summary.errors
  io.write(string.format("RESULT requests=%d us=%d p50=%.0f p99=%.0f bad=%d\n", summary.requests,
    summary.duration, latency:percentile(50), latency:percentile(99),
    e.status + e.timeout + e.read + e.connect))
end

-- Posts the bodies of a file in turn and prints one line of JSON at the end.
-- Arguments after "--": the file (see bodies.write), and "count" to count each status.

local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

local function headers_of(head)
  if head == 0 then
    return { ["Host"] = wrk.headers["Host"], ["Content-Type"] = "application/json" }
  end
  return {
    ["Host"] = wrk.headers["Host"],
    ["Content-Type"] = "application/octet-stream",
    ["Inference-Header-Content-Length"] = head,
  }
end

local function read_bodies(path)
  local file = assert(io.open(path, "rb"))
  local bodies = {}
  while true do
    local head, size = file:read("*n", "*n")
    if not head then break end
    file:read(1)
    table.insert(bodies, { head = head, data = size > 0 and file:read(size) or "" })
  end
  file:close()
  return bodies
end

function init(args)
  local bodies = read_bodies(args[1])
  if #bodies == 1 then
    -- Without a request function wrk never enters Lua for a request.
    wrk.method, wrk.headers, wrk.body = "POST", headers_of(bodies[1].head), bodies[1].data
  else
    local requests = {}
    for _, body in ipairs(bodies) do
      table.insert(requests, wrk.format("POST", nil, headers_of(body.head), body.data))
    end
    local turn = 0
    function request()
      turn = turn % #requests + 1
      return requests[turn]
    end
  end
  statuses = ""
  if args[2] == "count" then
    local seen = {}
    function response(status)
      seen[status] = (seen[status] or 0) + 1
      local parts = {}
      for number, times in pairs(seen) do
        table.insert(parts, string.format('"%d": %d', number, times))
      end
      statuses = table.concat(parts, ", ")
    end
  end
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"requests": %d, "seconds": %.6f, "bytes": %d, "p50_us": %d, "p90_us": %d, "p99_us": %d, '
      .. '"max_us": %d, "bad_status": %d, "socket_errors": %d, "timeouts": %d, "statuses": {%s}}\n',
    summary.requests, summary.duration / 1e6, summary.bytes, latency:percentile(50),
    latency:percentile(90), latency:percentile(99), latency.max, errors.status,
    errors.connect + errors.read + errors.write, errors.timeout, threads[1]:get("statuses") or ""))
end

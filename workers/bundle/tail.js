// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// The tail worker writes what the other workers of the process did to its output, one line for
// each event, as RFC 7464 has it: a record separator and a text of JSON. It does so only for a
// while after somebody has asked for it, by a POST.

const duration = 30_000; // milliseconds
const most = 128 * 1024; // of a line, in bytes of UTF-8: whoever reads the log has a bound as well

// cuts replace parts of an event that is too large, one after the other until it is not.
const cuts = [{ logs: [], diagnosticsChannelEvents: [] }, { exceptions: [] }, { event: null }];

const encoder = new TextEncoder();

let until = 0;

function line(script, event) {
  let text = JSON.stringify({ script, event });
  for (const cut of cuts) {
    if (encoder.encode(text).length <= most) break;
    event = { ...event, ...cut, truncated: true };
    text = JSON.stringify({ script, event });
  }
  return text;
}

export default {
  tail(events, env, ctx) {
    if (Date.now() > until) return;
    for (const event of events) {
      try {
        console.log("\u001e" + line(ctx.props.script, event));
      } catch {
        // An event that is no JSON is left out; the others are not.
      }
    }
  },

  fetch(request) {
    if (request.method !== "POST") {
      return new Response("ask by a POST\n", { status: 405, headers: { Allow: "POST" } });
    }
    until = Date.now() + duration;
    return new Response(null, { status: 204 });
  },
};

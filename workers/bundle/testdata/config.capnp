using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    ( name = "tail", worker = .tail ),
    ( name = "w0", worker = .w0 ),
    ( name = "w1", worker = .w1 ),
    ( name = "internet", network = ( allow = ["public"], deny = [], tlsOptions = ( trustBrowserCas = true ) ) ),
  ],
  sockets = [
    ( name = "tail", address = "*:8079", http = (), service = "tail" ),
    ( name = "w0", address = "*:8080", http = (), service = "w0" ),
    ( name = "w1", address = "*:8081", http = (), service = "w1" ),
  ],
);

const tail :Workerd.Worker = (
  modules = [( name = "tail.js", esModule = "// Copyright The Spokelet Authors.\x0a// SPDX-License-Identifier: Apache-2.0\x0a\x0a// The tail worker writes what the other workers of the process did to its output, one line for\x0a// each event, as RFC 7464 has it: a record separator and a text of JSON. It does so only for a\x0a// while after somebody has asked for it, by a POST.\x0a\x0aconst duration = 30_000; // milliseconds\x0aconst most = 128 * 1024; // of a line, in bytes of UTF-8: whoever reads the log has a bound as well\x0a\x0a// cuts replace parts of an event that is too large, one after the other until it is not.\x0aconst cuts = [{ logs: [], diagnosticsChannelEvents: [] }, { exceptions: [] }, { event: null }];\x0a\x0aconst encoder = new TextEncoder();\x0a\x0alet until = 0;\x0a\x0afunction line(script, event) {\x0a  let text = JSON.stringify({ script, event });\x0a  for (const cut of cuts) {\x0a    if (encoder.encode(text).length <= most) break;\x0a    event = { ...event, ...cut, truncated: true };\x0a    text = JSON.stringify({ script, event });\x0a  }\x0a  return text;\x0a}\x0a\x0aexport default {\x0a  tail(events, env, ctx) {\x0a    if (Date.now() > until) return;\x0a    for (const event of events) {\x0a      try {\x0a        console.log(\"\\u001e\" + line(ctx.props.script, event));\x0a      } catch {\x0a        // An event that is no JSON is left out; the others are not.\x0a      }\x0a    }\x0a  },\x0a\x0a  fetch(request) {\x0a    if (request.method !== \"POST\") {\x0a      return new Response(\"ask by a POST\\n\", { status: 405, headers: { Allow: \"POST\" } });\x0a    }\x0a    until = Date.now() + duration;\x0a    return new Response(null, { status: 204 });\x0a  },\x0a};\x0a" )],
  compatibilityDate = "2026-01-15",
);

const w0 :Workerd.Worker = (
  modules = [
    ( name = "index.js", esModule = embed "w0/0" ),
    ( name = "add.wasm", wasm = embed "w0/1" ),
    ( name = "lib/a.json", json = embed "w0/2" ),
    ( name = "logo.png", data = embed "w0/3" ),
    ( name = "page.html", text = embed "w0/4" ),
  ],
  tails = [( name = "tail", props = ( json = "{\"script\":\"hello\"}" ) )],
  compatibilityDate = "2026-01-15",
  compatibilityFlags = ["brotli_content_encoding", "nodejs_compat"],
  bindings = [
    ( name = "GREETING", text = "say \"hello\",\\ \x00 \x7f \xc3\xa9\x0d\x0a); const x = 1;" ),
    ( name = "LOGO", data = embed "w0/3" ),
    ( name = "OBJ", json = "{\"a\":[1,\"\\u003c\\\"\"]}" ),
    ( name = "PAGE", text = embed "w0/4" ),
    ( name = "TOKEN", fromEnvironment = "HELLO_TOKEN" ),
  ],
);

const w1 :Workerd.Worker = (
  modules = [
    ( name = "hello.mjs", esModule = embed "w1/0" ),
  ],
  tails = [( name = "tail", props = ( json = "{\"script\":\"other\"}" ) )],
  compatibilityDate = "2023-02-28",
  compatibilityFlags = [],
  bindings = [
  ],
);

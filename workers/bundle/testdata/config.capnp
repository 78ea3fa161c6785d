using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    ( name = "w0", worker = .w0 ),
    ( name = "w1", worker = .w1 ),
    ( name = "internet", network = ( allow = ["public"], deny = [], tlsOptions = ( trustBrowserCas = true ) ) ),
  ],
  sockets = [
    ( name = "w0", address = "*:8080", http = (), service = "w0" ),
    ( name = "w1", address = "*:8081", http = (), service = "w1" ),
  ],
);

const w0 :Workerd.Worker = (
  modules = [
    ( name = "index.js", esModule = embed "w0/0" ),
    ( name = "add.wasm", wasm = embed "w0/1" ),
    ( name = "lib/a.json", json = embed "w0/2" ),
    ( name = "logo.png", data = embed "w0/3" ),
    ( name = "page.html", text = embed "w0/4" ),
  ],
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
  compatibilityDate = "2023-02-28",
  compatibilityFlags = [],
  bindings = [
  ],
);

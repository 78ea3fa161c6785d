using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    ( name = "w0", worker = .w0 ),
    ( name = "internet", network = ( allow = [] ) ),
  ],
  sockets = [
    ( name = "w0", address = "unix:/work/probe", http = (), service = "w0" ),
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
    ( name = "TOKEN", text = "placeholder" ),
  ],
);

// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Version 2 answers in JSON, and signs what it says.

import module from "./add.wasm";
import { sign } from "./sign.js";

const { add } = new WebAssembly.Instance(module).exports;

export default {
  async fetch(request, env) {
    const query = new URL(request.url).searchParams;
    const sum = add(Number(query.get("a")), Number(query.get("b")));
    const text = `${env.GREETING} from version 2: ${sum}`;
    return new Response(JSON.stringify({ text, signature: await sign(text, env.SIGNING_KEY) }) + "\n");
  },
};

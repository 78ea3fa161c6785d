// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Version 1 greets, and adds two numbers.

import motto from "./motto.txt"; // a text
import module from "./add.wasm"; // a WebAssembly.Module, made of add.wat

const { add } = new WebAssembly.Instance(module).exports;

export default {
  // env has the bindings of the WorkerDeployment, and the keys of its Secret.
  async fetch(request, env) {
    const query = new URL(request.url).searchParams;
    const a = Number(query.get("a"));
    const b = Number(query.get("b"));
    return new Response(
      `${env.GREETING} from version 1: ${a} + ${b} = ${add(a, b)}.\n` +
        motto +
        `The key has ${env.SIGNING_KEY.length} characters.\n`,
    );
  },
};

// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// sign proves to whoever has the key that a text comes from this worker.
export async function sign(text, secret) {
  const utf8 = new TextEncoder();
  const hmac = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", utf8.encode(secret), hmac, false, ["sign"]);
  const signature = new Uint8Array(await crypto.subtle.sign(hmac, key, utf8.encode(text)));
  return Array.from(signature.slice(0, 8), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

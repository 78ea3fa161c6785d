;; Copyright The Spokelet Authors.
;; SPDX-License-Identifier: Apache-2.0

;; The source of add.wasm, which both versions import: wat2wasm add.wat -o 1/add.wasm
(module
  (func (export "add") (param i32 i32) (result i32)
    local.get 0
    local.get 1
    i32.add))

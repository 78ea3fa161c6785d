// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	_ "embed" // of the script
	"encoding/json"
	"fmt"

	"github.com/spokelet/spokelet/workers/script"
)

// TailPort is that of the tail worker, which writes what the others do to the process's output
// when it is asked to (tail.js).
const TailPort = FirstPort - 1

const (
	// tailName is that of its service and socket, which no worker has.
	tailName = "tail"
	// tailDate is its own, whatever those of the workers are.
	tailDate = "2026-01-15"
)

//go:embed tail.js
var tailScript string

// addTailWorker adds the tail worker.
func (f *configWriter) addTailWorker() {
	fmt.Fprintf(&f.services, "    ( name = %s, worker = .%s ),\n", quote(tailName), tailName)
	fmt.Fprintf(&f.sockets, "    ( name = %s, address = %s, http = (), service = %s ),\n", quote(tailName), quote(fmt.Sprintf("*:%d", TailPort)), quote(tailName))
	fmt.Fprintf(&f.constants, "\nconst %s :Workerd.Worker = (\n  modules = [( name = \"tail.js\", esModule = %s )],\n  compatibilityDate = %s,\n);\n",
		tailName, quote(tailScript), quote(tailDate))
}

// tailProps is what the tail worker knows of the worker that an event is of.
func tailProps(w script.Worker) string {
	raw, err := json.Marshal(map[string]string{"script": w.Name})
	if err != nil {
		panic(fmt.Sprintf("bundle: a name that is no JSON: %v", err)) // a string always is
	}
	return string(raw)
}

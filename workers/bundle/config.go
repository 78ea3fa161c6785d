// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"fmt"
	"strings"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/script"
)

// Services that every worker has as its globalOutbound, which is called internet unless it
// says otherwise. Without one of this name workerd would make its own.
const (
	publicNetwork = `( name = "internet", network = ( allow = ["public"], deny = [], tlsOptions = ( trustBrowserCas = true ) ) )`
	noNetwork     = `( name = "internet", network = ( allow = [] ) )`
)

// placeholder stands for the secrets in a probe: a script that looks at one when it is
// loaded finds a text, as it does in the image.
const placeholder = "placeholder"

// Config returns the configuration of the image: each worker on its port, of all addresses, and
// the tail worker on its own.
func (in Input) Config() []byte {
	f := configWriter{outbound: publicNetwork, hasTail: true}
	f.addTailWorker()
	for i, w := range in.Workers {
		f.addWorker(in, i, w, fmt.Sprintf("*:%d", FirstPort+i))
	}
	return f.bytes()
}

// Probe returns a configuration that serves worker i alone, at an address as unix:/path, with
// the modules of the image, without its secrets and without any network.
func (in Input) Probe(i int, address string) []byte {
	f := configWriter{outbound: noNetwork, withoutSecrets: true}
	f.addWorker(in, i, in.Workers[i], address)
	return f.bytes()
}

// A file is a configuration that is being written.
type configWriter struct {
	outbound       string
	withoutSecrets bool
	hasTail        bool

	services, sockets, constants bytes.Buffer
}

func (f *configWriter) bytes() []byte {
	var out bytes.Buffer
	out.WriteString("using Workerd = import \"/workerd/workerd.capnp\";\n\nconst config :Workerd.Config = (\n  services = [\n")
	out.Write(f.services.Bytes())
	fmt.Fprintf(&out, "    %s,\n  ],\n  sockets = [\n", f.outbound)
	out.Write(f.sockets.Bytes())
	out.WriteString("  ],\n);\n")
	out.Write(f.constants.Bytes())
	return out.Bytes()
}

// addWorker adds a worker. All that belongs to it is named by its place in the list.
func (f *configWriter) addWorker(in Input, i int, w script.Worker, address string) {
	name := serviceName(i)
	fmt.Fprintf(&f.services, "    ( name = %s, worker = .%s ),\n", quote(name), name)
	fmt.Fprintf(&f.sockets, "    ( name = %s, address = %s, http = (), service = %s ),\n", quote(name), quote(address), quote(name))
	fmt.Fprintf(&f.constants, "\nconst %s :Workerd.Worker = (\n", name)
	paths := make(map[string]string, len(w.Modules))
	for j, m := range w.Modules {
		paths[m.Name] = in.Path(i, j)
	}
	f.writeModules(w, paths)
	if f.hasTail {
		fmt.Fprintf(&f.constants, "  tails = [( name = %s, props = ( json = %s ) )],\n", quote(tailName), quote(tailProps(w)))
	}
	fmt.Fprintf(&f.constants, "  compatibilityDate = %s,\n  compatibilityFlags = [", quote(w.CompatibilityDate))
	for j, flag := range w.CompatibilityFlags {
		if j > 0 {
			f.constants.WriteString(", ")
		}
		f.constants.WriteString(quote(flag))
	}
	f.constants.WriteString("],\n  bindings = [\n")
	for _, b := range w.Bindings {
		fmt.Fprintf(&f.constants, "    ( name = %s, %s ),\n", quote(b.Name), f.bindingValue(b, paths))
	}
	f.constants.WriteString("  ],\n);\n")
}

// writeModules writes the script of a worker: its modules, or the one that is none.
func (f *configWriter) writeModules(w script.Worker, paths map[string]string) {
	if w.Body != "" {
		fmt.Fprintf(&f.constants, "  serviceWorkerScript = embed %s,\n", quote(paths[w.Body]))
		return
	}
	f.constants.WriteString("  modules = [\n")
	for _, m := range w.Modules {
		fmt.Fprintf(&f.constants, "    ( name = %s, %s = embed %s ),\n", quote(m.Name), moduleField(m.Kind), quote(paths[m.Name]))
	}
	f.constants.WriteString("  ],\n")
}

// moduleField returns the field of a module's content. Kinds are named as the fields are;
// anything else would be written into the file as it is.
func moduleField(kind string) string {
	switch kind {
	case script.KindESModule, script.KindCommonJS, script.KindWasm, script.KindText, script.KindJSON:
		return kind
	default:
		return script.KindData
	}
}

// bindingValue returns the field of a binding that has its value.
func (f *configWriter) bindingValue(b script.Binding, paths map[string]string) string {
	switch b.Type {
	case release.BindingJSON:
		return "json = " + quote(string(b.JSON))
	case release.BindingSecretText:
		if f.withoutSecrets {
			return "text = " + quote(placeholder)
		}
		return "fromEnvironment = " + quote(b.Variable)
	case release.BindingTextBlob:
		return "text = embed " + quote(paths[b.Part])
	case release.BindingDataBlob:
		return "data = embed " + quote(paths[b.Part])
	case release.BindingWasmModule:
		return "wasmModule = embed " + quote(paths[b.Part])
	default:
		return "text = " + quote(b.Text)
	}
}

// quote writes a text of any bytes as Cap'n Proto reads it: printable ASCII as it is, all
// else by number.
func quote(s string) string {
	var out strings.Builder
	out.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			out.WriteByte('\\')
			out.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&out, `\x%02x`, c)
		default:
			out.WriteByte(c)
		}
	}
	out.WriteByte('"')
	return out.String()
}

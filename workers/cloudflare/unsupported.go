// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudflare

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// unsupportedProducts are parts of Cloudflare's API that are not served, by what is in their paths.
var unsupportedProducts = []struct{ in, name string }{
	{"/storage/kv/", "KV"},
	{"/d1/", "D1"},
	{"/r2/", "R2"},
	{"/queues", "queues"},
	{"/durable_objects", "Durable Objects"},
	{"/workflows", "workflows"},
	{"/vectorize", "Vectorize"},
	{"/hyperdrive", "Hyperdrive"},
	{"/ai/", "AI"},
	{"/ai-search/", "AI Search"},
	{"/agent-memory/", "Agent Memory"},
	{"/flagship/", "Flagship"},
	{"/pages/", "Pages"},
	{"/containers", "containers"},
	{"/cloudchamber", "containers"},
	{"/pipelines", "pipelines"},
	{"/secrets_store", "the Secrets Store"},
	{"/dispatch", "dispatch namespaces"},
	{"/assets-upload-session", "static assets"},
	{"/workers/assets", "static assets"},
	{"/schedules", "cron triggers"},
	{"/zones", "zones and their routes"},
	{"/workers/domains", "custom domains"},
	{"/domains/", "custom domains"},
	{"/routes", "routes"},
	{"/mtls_certificates", "mTLS certificates"},
	{"/workers/", "this part of the Workers API"}, // what is left of it
}

// rejectContent answers wrangler init --from-dash, which prints only the status line of an error. net/http cannot
// write a custom reason there.
func rejectContent(w http.ResponseWriter, _ *http.Request) {
	const answer = "HTTP/1.1 403 not supported by Spokelet: init --from-dash, code is not given back\r\n" +
		"Connection: close\r\nContent-Length: 0\r\n\r\n"
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = conn.SetDeadline(time.Now().Add(headerTimeout))
	_, _ = io.WriteString(conn, answer) // a client that is gone needs no answer
	_ = conn.Close()
}

// rejectUnsupported answers what is not served. A more specific part is looked for first.
func rejectUnsupported(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	for _, product := range unsupportedProducts {
		if strings.Contains(path+"/", product.in) {
			// 403 is what wrangler goes on after, with a warning, when it looks for namespaces to
			// clean up at the end of a delete.
			writeEnvelope(w, nil, newAPIError(http.StatusForbidden, codeNotSupported, "not supported by Spokelet: "+product.name))
			return
		}
	}
	writeEnvelope(w, nil, newAPIError(http.StatusNotFound, codeNoRoute, fmt.Sprintf("Could not route to %s %s, perhaps your object identifier is invalid?", r.Method, path)))
}

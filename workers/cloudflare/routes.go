// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudflare

// routes are what is served. Each names the right that it needs.
func (a *API) routes() {
	const (
		account = "/accounts/{account}"
		scripts = account + "/workers/scripts/{script}"
		service = account + "/workers/services/{script}"
		worker  = account + "/workers/workers/{script}"
	)
	a.handle("GET /user/tokens/verify", "", a.verifyToken)
	a.handle("GET /user", "", a.user)
	a.handle("GET /accounts", "", a.accounts)
	a.handle("GET /memberships", "", a.memberships)
	a.handle("GET "+account+"/workers/subdomain", "get", a.subdomain)

	a.handle("GET "+service, "get", a.service)
	a.handle("DELETE "+service, "delete", a.delete)
	a.handle("DELETE "+scripts, "delete", a.delete)
	a.handle("GET "+worker, "get", a.worker)
	a.handle("GET "+scripts+"/subdomain", "get", a.scriptSubdomain)
	a.handle("POST "+scripts+"/subdomain", "update", a.setSubdomain)
	a.handle("GET "+scripts+"/settings", "get", a.settings)
	a.handle("PATCH "+scripts+"/settings", "update", a.patchSettings)
	a.handle("PATCH "+scripts+"/script-settings", "update", a.setSettings)
	a.handle("GET "+scripts+"/references", "get", a.references)
	a.handle("GET "+account+"/workers/tails/by-consumer/{script}", "get", nothing)
	a.handle("GET "+account+"/workers/durable_objects/namespaces", "get", nothing)
	a.handle("GET "+account+"/storage/kv/namespaces", "get", nothing)

	a.handle("PUT "+scripts, "update", a.deploy)
	a.handle("POST "+scripts+"/versions", "update", a.uploadVersion)
	a.handle("GET "+scripts+"/versions", "get", a.versions)
	a.handle("GET "+scripts+"/versions/{id}", "get", a.version)
	a.handle("PATCH "+worker+"/versions/latest", "update", a.patchLatest)
	a.handle("GET "+scripts+"/deployments", "get", a.deployments)
	a.handle("POST "+scripts+"/deployments", "update", a.deployVersion)

	a.handle("GET "+scripts+"/secrets", "get", a.secrets)
	a.handle("PUT "+scripts+"/secrets", "update", a.putSecret)
	a.handle("DELETE "+scripts+"/secrets/{name}", "update", a.deleteSecret)
	a.handle("PATCH "+scripts+"/secrets-bulk", "update", a.patchSecrets)

	a.handle("POST "+scripts+"/tails", "get", a.createTail)
	a.handle("DELETE "+scripts+"/tails/{id}", "get", a.deleteTail)
	a.mux.Handle("GET /tails/{id}/{secret}", a.config.Tails)
	a.mux.HandleFunc("GET /client/v4"+service+"/environments/{environment}/content/v2", refuseContent)
	a.mux.HandleFunc("/", refuse)
}

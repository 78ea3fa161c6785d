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
	a.handleRoute("GET /user/tokens/verify", "", a.verifyToken)
	a.handleRoute("GET /user", "", a.getUser)
	a.handleRoute("GET /accounts", "", a.listAccounts)
	a.handleRoute("GET /memberships", "", a.listMemberships)
	a.handleRoute("GET "+account+"/workers/subdomain", "get", a.getSubdomain)

	a.handleRoute("GET "+service, "get", a.getService)
	a.handleRoute("DELETE "+service, "delete", a.deleteScript)
	a.handleRoute("DELETE "+scripts, "delete", a.deleteScript)
	a.handleRoute("GET "+worker, "get", a.getWorker)
	a.handleRoute("GET "+scripts+"/subdomain", "get", a.getScriptSubdomain)
	a.handleRoute("POST "+scripts+"/subdomain", "update", a.setSubdomain)
	a.handleRoute("GET "+scripts+"/settings", "get", a.getSettings)
	a.handleRoute("PATCH "+scripts+"/settings", "update", a.patchSettings)
	a.handleRoute("PATCH "+scripts+"/script-settings", "update", a.patchScriptSettings)
	a.handleRoute("GET "+scripts+"/references", "get", a.getReferences)
	a.handleRoute("GET "+account+"/workers/tails/by-consumer/{script}", "get", emptyList)
	a.handleRoute("GET "+account+"/workers/durable_objects/namespaces", "get", emptyList)
	a.handleRoute("GET "+account+"/storage/kv/namespaces", "get", emptyList)

	a.handleRoute("PUT "+scripts, "update", a.deployScript)
	a.handleRoute("POST "+scripts+"/versions", "update", a.uploadVersion)
	a.handleRoute("GET "+scripts+"/versions", "get", a.listVersions)
	a.handleRoute("GET "+scripts+"/versions/{id}", "get", a.getVersion)
	a.handleRoute("PATCH "+worker+"/versions/latest", "update", a.patchLatest)
	a.handleRoute("GET "+scripts+"/deployments", "get", a.listDeployments)
	a.handleRoute("POST "+scripts+"/deployments", "update", a.deployVersion)

	a.handleRoute("GET "+scripts+"/secrets", "get", a.listSecrets)
	a.handleRoute("PUT "+scripts+"/secrets", "update", a.putSecret)
	a.handleRoute("DELETE "+scripts+"/secrets/{name}", "update", a.deleteSecret)
	a.handleRoute("PATCH "+scripts+"/secrets-bulk", "update", a.patchSecrets)

	a.handleRoute("POST "+scripts+"/tails", "get", a.createTail)
	a.handleRoute("DELETE "+scripts+"/tails/{id}", "get", a.deleteTail)
	a.mux.Handle("GET /tails/{id}/{secret}", a.config.Tails)
	a.mux.HandleFunc("GET /client/v4"+service+"/environments/{environment}/content/v2", rejectContent)
	a.mux.HandleFunc("/", rejectUnsupported)
}

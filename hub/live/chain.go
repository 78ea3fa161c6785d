// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"net/http"

	endpoints "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/filters"

	"github.com/spokelet/spokelet/internal/httpproxy"
)

// buildHandlerChain is what a request goes through before it is answered, from the inside
// to the outside: genericserver.DefaultBuildHandlerChain in its order, without
// what measures and traces its own filters, which for a small request costs
// more than the filters do, and without what is not configured here (audit
// backends, CORS, priority and fairness, GOAWAY, features that are off).
//
// Everything is installed before the listener is served, so that no request
// can come too early for its path.
func buildHandlerChain(api http.Handler, c *genericserver.Config) http.Handler {
	h := endpoints.WithAuthorization(api, c.Authorization.Authorizer, c.Serializer)
	h = filters.WithMaxInFlightLimit(h, c.MaxRequestsInFlight, c.MaxMutatingRequestsInFlight, c.LongRunningFunc)
	h = impersonation.WithConstrainedImpersonation(h, c.Authorization.Authorizer, c.Serializer)
	h = endpoints.WithAuthentication(h, c.Authentication.Authenticator, endpoints.Unauthorized(c.Serializer),
		c.Authentication.APIAudiences, c.Authentication.RequestHeaderConfig)
	h = filters.WithTimeoutForNonLongRunningRequests(h, c.LongRunningFunc)
	h = endpoints.WithRequestDeadline(h, nil, nil, c.LongRunningFunc, c.Serializer, c.RequestTimeout)
	h = filters.WithWaitGroup(h, c.LongRunningFunc, c.NonLongRunningRequestWaitGroup)
	h = endpoints.WithCacheControl(h)
	h = filters.WithHTTPLogging(h)
	h = endpoints.WithRequestInfo(h, c.RequestInfoResolver)
	h = endpoints.WithRequestReceivedTimestamp(h)
	h = filters.WithPanicRecovery(h, c.RequestInfoResolver)
	return endpoints.WithAuditInit(closeAfterUpgrade(h))
}

// closeAfterUpgrade has the connection of an upgrade request, well-formed or
// not, end with the answer, whichever filter gives it: what follows a refused
// upgrade is not HTTP. An upgrade that succeeds takes the connection over.
func closeAfterUpgrade(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if protocol, err := httpproxy.HeaderProtocol(r.Header); r.ProtoMajor == 1 && (protocol != "" || err != nil) {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

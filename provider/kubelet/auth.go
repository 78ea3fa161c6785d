// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
)

// The kubelet's own cache times (KubeletConfiguration, authentication and
// authorization webhooks).
const (
	tokenTTL  = 2 * time.Minute
	allowTTL  = 5 * time.Minute
	denyTTL   = 30 * time.Second
	reviewFor = 10 * time.Second
)

// Where the API server publishes the CA of its clients' certificates.
const (
	authNamespace = metav1.NamespaceSystem
	authConfigMap = "extension-apiserver-authentication"
	authClientCA  = "client-ca-file"
)

// Auth decides who may ask what of a node, as the hub's API server says.
type Auth struct {
	Authenticator authenticator.Request
	Authorizer    authorizer.Authorizer

	clientCA *dynamiccertificates.ConfigMapCAController
	// read is closed when the client CA has been read for the first time.
	read *initialSync
}

// initialSync is a dynamiccertificates.Listener.
type initialSync struct {
	sync.Once
	done chan struct{}
}

// Enqueue is called with every version of the client CA.
func (o *initialSync) Enqueue() { o.Do(func() { close(o.done) }) }

// NewAuth returns an Auth that accepts certificates once Run has read the CA.
// client needs create on tokenreviews and subjectaccessreviews, and get, list
// and watch on the one ConfigMap.
func NewAuth(client kubernetes.Interface) (*Auth, error) {
	clientCA, err := dynamiccertificates.NewDynamicCAFromConfigMapController(
		"kubelet-client-ca", authNamespace, authConfigMap, authClientCA, client)
	if err != nil {
		return nil, fmt.Errorf("client CA cannot be followed: %w", err)
	}
	// One retry: the API server that asks is also the one that waits.
	retry := &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 2}
	authn, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		TokenAccessReviewClient:            client.AuthenticationV1(),
		TokenAccessReviewTimeout:           reviewFor,
		WebhookRetryBackoff:                retry,
		CacheTTL:                           tokenTTL,
		ClientCertificateCAContentProvider: clientCA,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("authenticator cannot be made: %w", err)
	}
	authz, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		AllowCacheTTL:             allowTTL,
		DenyCacheTTL:              denyTTL,
		WebhookRetryBackoff:       retry,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("authorizer cannot be made: %w", err)
	}
	read := &initialSync{done: make(chan struct{})}
	clientCA.AddListener(read)
	return &Auth{Authenticator: authn, Authorizer: authz, clientCA: clientCA, read: read}, nil
}

// Run follows the client CA until ctx ends.
func (a *Auth) Run(ctx context.Context) { a.clientCA.Run(ctx, 1) }

// Await waits until the client CA has been read. Before, every certificate is
// refused; a hub that has just started waits so as not to refuse the API server.
func (a *Auth) Await(ctx context.Context) error {
	select {
	case <-a.read.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("client CA was not read: %w", ctx.Err())
	}
}

// subresources are what a kubelet asks for a path, most particular first; one of
// them is enough (KEP-2862, fine-grained kubelet authorization).
func subresources(path string) []string {
	switch {
	case isBelow(path, "/stats"):
		return []string{"stats"}
	case isBelow(path, "/metrics"):
		return []string{"metrics"}
	case isBelow(path, "/logs"):
		return []string{"log"}
	case isBelow(path, "/checkpoint"):
		return []string{"checkpoint"}
	case isBelow(path, "/healthz"):
		return []string{"healthz", "proxy"}
	case isBelow(path, "/configz"):
		return []string{"configz", "proxy"}
	case isBelow(path, "/pods"), isBelow(path, "/runningpods"):
		return []string{"pods", "proxy"}
	default:
		return []string{"proxy"}
	}
}

func isBelow(path, root string) bool {
	return path == root || strings.HasPrefix(path, root+"/")
}

// verbs are the API verbs of HTTP methods; a method without one is refused.
var verbs = map[string]string{
	http.MethodGet:    "get",
	http.MethodHead:   "get",
	http.MethodPost:   "create",
	http.MethodPut:    "update",
	http.MethodPatch:  "patch",
	http.MethodDelete: "delete",
}

// verbOf is the verb that a request needs. What runs in a container, or reaches
// its ports, is created, whatever the method: a WebSocket begins with a GET.
func verbOf(method, path string) (verb string, ok bool) {
	verb, ok = verbs[method]
	for _, root := range []string{pathExec, pathAttach, pathPortForward, pathRun} {
		if ok && isBelow(path, root) {
			return "create", true
		}
	}
	return verb, ok
}

// authenticate returns who asks, or false.
func (e *endpoint) authenticate(r *http.Request) (user.Info, bool) {
	response, ok, err := e.config.Authenticator.AuthenticateRequest(r)
	if err != nil || !ok || response == nil || response.User == nil {
		return nil, false
	}
	return response.User, true
}

// authorize reports whether u may do to the node what r asks for.
func (e *endpoint) authorize(r *http.Request, u user.Info) bool {
	verb, ok := verbOf(r.Method, r.URL.Path)
	if !ok {
		return false
	}
	for _, subresource := range subresources(r.URL.Path) {
		decision, _, err := e.config.Authorizer.Authorize(r.Context(), authorizer.AttributesRecord{
			User:            u,
			Verb:            verb,
			APIVersion:      "v1",
			Resource:        "nodes",
			Subresource:     subresource,
			Name:            e.node,
			ResourceRequest: true,
			Path:            r.URL.Path,
		})
		// An error in one question does not let the next one answer.
		if err != nil {
			return false
		}
		if decision == authorizer.DecisionAllow {
			return true
		}
	}
	return false
}

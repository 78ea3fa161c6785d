// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	authunion "k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/apiserver/pkg/authorization/union"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
)

const (
	// extensionAuthentication is the ConfigMap in kube-system by which an API
	// server publishes what its extensions need to authenticate requests.
	extensionAuthentication = "extension-apiserver-authentication"
	// decisionTTL is how long the review of a token or a right is cached.
	decisionTTL = 10 * time.Second
	// reviewTimeout is how long the hub's API server may take to review a token.
	reviewTimeout = 10 * time.Second
)

// delegateAuthentication delegates authentication to the hub's API server: by the
// headers of its front proxy, by client certificates and by token reviews.
func delegateAuthentication(ctx context.Context, c *genericserver.Config, client kubernetes.Interface) error {
	clientCA, err := dynamiccertificates.NewDynamicCAFromConfigMapController(
		"client-ca", metav1.NamespaceSystem, extensionAuthentication, "client-ca-file", client)
	if err != nil {
		return fmt.Errorf("client CA: %w", err)
	}
	headers, err := newRequestHeaderConfig(ctx, client)
	if err != nil {
		return fmt.Errorf("front proxy: %w", err)
	}
	direct, definitions, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		TokenAccessReviewClient:            client.AuthenticationV1(),
		TokenAccessReviewTimeout:           reviewTimeout,
		WebhookRetryBackoff:                options.DefaultAuthWebhookRetryBackoff(),
		CacheTTL:                           decisionTTL,
		ClientCertificateCAContentProvider: clientCA,
	}.New()
	if err != nil {
		return fmt.Errorf("authenticator: %w", err)
	}
	// The factory's order: the front proxy, the caller's own credentials, nobody.
	known := authunion.New(group.NewAuthenticatedGroupAdder(newFrontProxyAuthenticator(headers, time.Now)), direct)
	// Health probes come without credentials; the authorizer stops the rest.
	c.Authentication.Authenticator = authunion.NewFailOnError(known, anonymous.NewAuthenticator(nil))
	c.Authentication.RequestHeaderConfig = headers
	c.OpenAPIConfig.SecurityDefinitions = definitions
	c.SecureServing.ClientCA = dynamiccertificates.NewUnionCAContentProvider(clientCA, headers.CAContentProvider)
	return nil
}

// newRequestHeaderConfig follows what the ConfigMap says of the front proxy. Without
// it there is nobody to believe, and that is an error.
func newRequestHeaderConfig(ctx context.Context, client kubernetes.Interface) (*authenticatorfactory.RequestHeaderConfig, error) {
	ca, err := dynamiccertificates.NewDynamicCAFromConfigMapController(
		"request-header", metav1.NamespaceSystem, extensionAuthentication, "requestheader-client-ca-file", client)
	if err != nil {
		return nil, err
	}
	names := headerrequest.NewRequestHeaderAuthRequestController(
		extensionAuthentication, metav1.NamespaceSystem, client,
		"requestheader-username-headers", "requestheader-uid-headers", "requestheader-group-headers",
		"requestheader-extra-headers-prefix", "requestheader-allowed-names")
	// The union of both is what the serving code runs along with the CA.
	both := &options.DynamicRequestHeaderController{ConfigMapCAController: ca, RequestHeaderAuthRequestController: names}
	if err := both.RunOnce(ctx); err != nil {
		return nil, err
	}
	return &authenticatorfactory.RequestHeaderConfig{
		CAContentProvider:   both,
		UsernameHeaders:     headerrequest.StringSliceProviderFunc(both.UsernameHeaders),
		UIDHeaders:          headerrequest.StringSliceProviderFunc(both.UIDHeaders),
		GroupHeaders:        headerrequest.StringSliceProviderFunc(both.GroupHeaders),
		ExtraHeaderPrefixes: headerrequest.StringSliceProviderFunc(both.ExtraHeaderPrefixes),
		AllowedClientNames:  headerrequest.StringSliceProviderFunc(both.AllowedClientNames),
	}, nil
}

// delegateAuthorization delegates authorization to the hub's API server.
func delegateAuthorization(client kubernetes.Interface) (authorizer.Authorizer, error) {
	health, err := path.NewAuthorizer([]string{"/healthz", "/livez", "/readyz"})
	if err != nil {
		return nil, fmt.Errorf("health paths: %w", err)
	}
	review, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		AllowCacheTTL:             decisionTTL,
		DenyCacheTTL:              decisionTTL,
		WebhookRetryBackoff:       options.DefaultAuthWebhookRetryBackoff(),
	}.New()
	if err != nil {
		return nil, fmt.Errorf("subject access review: %w", err)
	}
	return union.New(
		union.NamedAuthorizer{AuthorizerName: "live.spokelet.io/health", Authorizer: health},
		union.NamedAuthorizer{AuthorizerName: "live.spokelet.io/discovery", Authorizer: authorizer.AuthorizerFunc(allowDiscovery)},
		union.NamedAuthorizer{AuthorizerName: "kubernetes.io/webhook", Authorizer: review},
	)
}

// allowDiscovery lets every authenticated caller read what the group consists of, as
// the ClusterRole system:discovery does. It is the same text in every
// installation, and the hub's controllers read it again and again: asking for a
// review each time would be a request that nothing has caused.
func allowDiscovery(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.IsResourceRequest() || a.GetVerb() != "get" || a.GetUser() == nil {
		return authorizer.DecisionNoOpinion, "", nil
	}
	if !slices.Contains(a.GetUser().GetGroups(), user.AllAuthenticated) || !isDiscovery(a.GetPath()) {
		return authorizer.DecisionNoOpinion, "", nil
	}
	return authorizer.DecisionAllow, "discovery", nil
}

func isDiscovery(p string) bool {
	p = strings.TrimSuffix(p, "/")
	return p == "/apis" || p == "/version" || p == "/openapi/v2" || p == "/openapi/v3" ||
		p == "/apis/"+livev1alpha1.GroupName || p == "/apis/"+livev1alpha1.SchemeGroupVersion.String() ||
		strings.HasPrefix(p, "/openapi/v3/apis/"+livev1alpha1.GroupName)
}

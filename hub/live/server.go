// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/rest"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/kubernetes"
	clientrest "k8s.io/client-go/rest"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
	"github.com/spokelet/spokelet/hub/live/openapi"
)

// requestTimeout ends requests other than watches and those to clusters/proxy.
const requestTimeout = time.Minute

// Server is the live API server. It is a manager.Runnable.
type Server struct {
	cfg     Config
	store   *clusterStore
	views   *viewStorage
	generic *genericserver.GenericAPIServer
}

// New makes a server. It asks the hub's API server whom to believe, and fails
// when there is no answer.
func New(ctx context.Context, cfg Config) (*Server, error) {
	cfg.Limits.Default()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, store: newClusterStore(time.Now)}
	if err := s.build(ctx); err != nil {
		return nil, fmt.Errorf("live API: %w", err)
	}
	return s, nil
}

func (s *Server) build(ctx context.Context) error {
	codecs := newCodecs()
	config, err := s.genericConfig(ctx, codecs)
	if err != nil {
		return err
	}
	delegated := config.Authorization.Authorizer
	config.Authorization.Authorizer = logRefusals(delegated, s.cfg.Logger)
	p := &proxy{
		store:      s.store,
		sessions:   s.cfg.Sessions,
		authorizer: config.Authorization.Authorizer,
		codecs:     codecs,
		requests:   newRequestLimiter(s.cfg.Limits, s.cfg.Streams),
		errorLog:   slog.NewLogLogger(logr.ToSlogHandler(s.cfg.Logger), slog.LevelDebug),
		logger:     s.cfg.Logger,
	}
	s.views = newViewStorage(s.store, s.cfg.Sessions, config.Authorization.Authorizer, delegated, s.cfg.Limits, s.cfg.Memory)
	views := &viewHandler{views: s.views, codecs: codecs}
	config.BuildHandlerChainFunc = func(api http.Handler, c *genericserver.Config) http.Handler {
		return buildHandlerChain(p.wrap(views.wrap(api)), c)
	}
	s.generic, err = config.Complete(nil).New("live.spokelet.io", genericserver.NewEmptyDelegate())
	if err != nil {
		return err
	}
	group := genericserver.NewDefaultAPIGroupInfo(livev1alpha1.GroupName, codecs.scheme, metav1.ParameterCodec, codecs.CodecFactory)
	group.VersionedResourcesStorageMap[livev1alpha1.SchemeGroupVersion.Version] = map[string]rest.Storage{
		clustersResource: &clusterStorage{store: s.store},
		clustersResource + "/" + proxySubresource: &proxyStorage{proxy: p},
		viewWorksResource:                         s.views,
	}
	return s.generic.InstallAPIGroup(&group)
}

// codecs are the serializers of a scheme, which they keep to themselves.
type codecs struct {
	serializer.CodecFactory
	scheme *runtime.Scheme
}

// newCodecs knows the types of the live API and those that every API server
// answers with. There being one version, its types are the internal ones too,
// and no object is ever converted.
func newCodecs() codecs {
	scheme := runtime.NewScheme()
	livev1alpha1.AddKnownTypes(scheme, livev1alpha1.SchemeGroupVersion)
	livev1alpha1.AddKnownTypes(scheme, schema.GroupVersion{Group: livev1alpha1.GroupName, Version: runtime.APIVersionInternal})
	metav1.AddToGroupVersion(scheme, livev1alpha1.SchemeGroupVersion)
	core := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, core)
	scheme.AddUnversionedTypes(core,
		&metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	return codecs{CodecFactory: serializer.NewCodecFactory(scheme), scheme: scheme}
}

// genericConfig is the API machinery's configuration: delegated, without
// storage and without flags.
func (s *Server) genericConfig(ctx context.Context, codecs codecs) (*genericserver.Config, error) {
	config := genericserver.NewConfig(codecs.CodecFactory)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.RequestTimeout = requestTimeout
	config.LongRunningFunc = filters.BasicLongRunningRequestCheck(
		sets.NewString("watch", "proxy"), sets.NewString(proxySubresource))
	config.EnableProfiling = false
	// Without the default check of the log, which would wake up every minute.
	ping := []healthz.HealthChecker{healthz.PingHealthz}
	config.HealthzChecks, config.LivezChecks, config.ReadyzChecks = ping, ping, ping
	// The hub's metrics have a server of their own.
	config.EnableMetrics = false
	definitions := apiopenapi.NewDefinitionNamer(codecs.scheme)
	config.OpenAPIConfig = genericserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, definitions)
	config.OpenAPIConfig.Info.Title = "Spokelet live API"
	config.OpenAPIV3Config = genericserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, definitions)
	config.OpenAPIV3Config.Info.Title = config.OpenAPIConfig.Info.Title
	config.OpenAPIV3Config.PostProcessSpec = describePatch

	if err := s.applyServing(config); err != nil {
		return nil, fmt.Errorf("serving: %w", err)
	}
	client, err := delegationClient(s.cfg.Rest)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	if err := delegateAuthentication(ctx, config, client); err != nil {
		return nil, fmt.Errorf("authentication: %w", err)
	}
	authorizer, err := delegateAuthorization(client)
	if err != nil {
		return nil, fmt.Errorf("authorization: %w", err)
	}
	config.Authorization.Authorizer = authorizer
	return config, nil
}

func (s *Server) applyServing(config *genericserver.Config) error {
	serving := options.NewSecureServingOptions()
	serving.Listener = s.cfg.Listener
	serving.MinTLSVersion = "VersionTLS12"
	if err := serving.ApplyTo(&config.SecureServing); err != nil {
		return err
	}
	config.SecureServing.Cert = s.cfg.Certificate
	// The machinery wants a client of its own server, which nothing here uses: one that is
	// empty has no token that may do everything, and takes no second to make keys for.
	config.LoopbackClientConfig = &clientrest.Config{}
	return nil
}

// delegationClient asks as often as there are requests to decide about; the
// answers are cached, and the hub's API server has limits of its own.
func delegationClient(cfg *clientrest.Config) (kubernetes.Interface, error) {
	cfg = clientrest.CopyConfig(cfg)
	cfg.QPS = -1
	return kubernetes.NewForConfig(cfg)
}

// Start serves until ctx ends, and then until the requests in flight are done.
// Watches end at once.
func (s *Server) Start(ctx context.Context) error {
	if err := s.cfg.Records.Subscribe(ctx, s.store.handleRecord); err != nil {
		return fmt.Errorf("live API: %w", err)
	}
	cancel := s.cfg.Sessions.Subscribe(func(e SessionEvent) {
		s.views.catalogs.remove(e.Cluster)
		s.store.handleSession(e)
	})
	defer cancel()
	stop := context.AfterFunc(ctx, s.store.stopWatches)
	defer stop()
	if err := s.generic.PrepareRun().RunWithContext(ctx); err != nil {
		return fmt.Errorf("live API: %w", err)
	}
	return nil
}

// NeedLeaderElection says that every replica serves.
func (s *Server) NeedLeaderElection() bool { return false }

// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"helm.sh/helm/v4/pkg/action"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/kube"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/helm/message"
	"github.com/spokelet/spokelet/helm/chart"
)

const (
	// defaultNamespace is the namespace of a release whose request has none.
	defaultNamespace = "default"
	// maxHistory bounds the revisions of a release, as in the helm command.
	maxHistory = 10
	// recoverTimeout is the minimum timeout of recovery, which only reads and records.
	recoverTimeout = time.Minute
	// shutdownTime is how long Helm may take after the timeout to record the failure.
	shutdownTime = 10 * time.Second
)

// setFieldManager sets the field manager of the helm command, so that either can change what the
// other has applied without a conflict.
var setFieldManager = sync.OnceFunc(func() { kube.ManagedFieldsManager = "helm" })

// operation executes one request.
type operation struct {
	request message.Request
	kube    kubernetes.Interface
	helm    *action.Configuration
	client  *reportingClient
	end     time.Time // of the request; zero before its chart was read
	report  func(progress string)
}

// Run executes a request in a cluster, and reports its progress. The timeout of a request begins
// when its chart was read. The process must end after Run returns, because Helm may not have.
func Run(ctx context.Context, request message.Request, cluster *rest.Config, say func(progress string)) message.Answer {
	if request.Verb == message.Recover {
		request.Timeout = max(request.Timeout, recoverTimeout)
	}
	o := &operation{request: request, report: say}
	// The chart is read first, so that an invalid one changes nothing in the cluster.
	loaded, values, err := o.loadChart(ctx)
	if err != nil {
		return message.Answer{Failure: o.failureOf(err)}
	}
	o.end = time.Now().Add(request.Timeout)
	ctx, cancel := context.WithDeadline(ctx, o.end.Add(shutdownTime))
	defer cancel()
	done := make(chan message.Answer, 1)
	go func() { // Helm does not observe a context everywhere
		released, err := o.run(ctx, cluster, loaded, values)
		if err != nil {
			done <- message.Answer{Failure: o.failureOf(err)}
			return
		}
		done <- message.Answer{Release: released}
	}()
	select {
	case answer := <-done:
		return answer
	case <-ctx.Done():
		return message.Answer{Failure: o.failureOf(fmt.Errorf("%s of release %s: %w", request.Verb, request.Name, ctx.Err()))}
	}
}

// run executes the request. Helm does not wait beyond the timeout.
func (o *operation) run(ctx context.Context, config *rest.Config, loaded *chart.Chart, values map[string]any) (*message.Release, error) {
	var err error
	if o.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("client of the cluster: %w", err)
	}
	if err := o.resolveNamespace(ctx); err != nil {
		return nil, err
	}
	if err := o.initHelm(config); err != nil {
		return nil, err
	}
	switch o.request.Verb {
	case message.Install:
		return o.install(ctx, loaded, values)
	case message.Upgrade:
		return o.upgrade(ctx, loaded, values)
	case message.Uninstall:
		return o.uninstall(ctx)
	case message.Recover:
		return o.recoverRequest()
	default:
		return nil, fmt.Errorf("%w: unknown verb %.32q", errRequest, o.request.Verb)
	}
}

// loadChart loads the chart and its values, for verbs that need them.
func (o *operation) loadChart(ctx context.Context) (*chart.Chart, map[string]any, error) {
	if err := chartutil.ValidateReleaseName(o.request.Name); err != nil {
		return nil, nil, fmt.Errorf("%w: name %.64q of the release: %w", errRequest, o.request.Name, err)
	}
	if o.request.Verb != message.Install && o.request.Verb != message.Upgrade {
		return nil, nil, nil
	}
	if o.request.Chart.URL == "" {
		return nil, nil, fmt.Errorf("%w: it names no chart (helm.chartURL)", errRequest)
	}
	allowed, err := chart.ParseAllowed(o.request.Allowed)
	if err != nil {
		return nil, nil, err
	}
	source := chart.NewSource(allowed, o.request.Chart.InsecureSkipVerify)
	o.report("reading chart " + o.request.Chart.URL)
	loaded, err := source.Get(ctx, o.request.Chart)
	if err != nil {
		return nil, nil, err
	}
	values, err := o.loadValues(ctx, source)
	return loaded, values, err
}

// loadValues merges the values of a file and those of the request, which override them.
func (o *operation) loadValues(ctx context.Context, source *chart.Source) (map[string]any, error) {
	ours, err := chart.ParseValues(o.request.Values)
	if err != nil || o.request.ValuesURL == "" {
		return ours, err
	}
	raw, err := source.Values(ctx, o.request.ValuesURL)
	if err != nil {
		return nil, err
	}
	theirs, err := chart.ParseValues(raw)
	if err != nil {
		return nil, fmt.Errorf("values %s: %w", o.request.ValuesURL, err)
	}
	return mergeValues(theirs, ours), nil
}

// mergeValues merges values as the helm command merges several files.
func mergeValues(under, over map[string]any) map[string]any {
	for key, value := range over {
		below, isMap := under[key].(map[string]any)
		if above, ok := value.(map[string]any); ok && isMap {
			value = mergeValues(below, above)
		}
		under[key] = value
	}
	return under
}

// initHelm creates Helm's configuration.
func (o *operation) initHelm(config *rest.Config) error {
	setFieldManager()
	o.helm = action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	reached := newClientGetter(config, o.request.Namespace)
	if err := o.helm.Init(reached, o.request.Namespace, "secret"); err != nil {
		return fmt.Errorf("helm: %w", err)
	}
	client, ok := o.helm.KubeClient.(*kube.Client)
	if !ok {
		return fmt.Errorf("helm: its client is a %T", o.helm.KubeClient)
	}
	client.Namespace = o.request.Namespace
	o.client = &reportingClient{Client: client, report: o.report, end: o.end, discovery: o.kube.Discovery(), mapper: reached.ToRESTMapper}
	o.helm.KubeClient = o.client
	o.helm.Releases.MaxHistory = maxHistory
	return nil
}

func (o *operation) waitStrategy() kube.WaitStrategy {
	if o.request.Wait {
		return kube.StatusWatcherStrategy
	}
	return kube.HookOnlyStrategy
}

// subject describes the release.
func (o *operation) subject() string {
	return fmt.Sprintf("release %s in namespace %s", o.request.Name, cmp.Or(o.request.Namespace, defaultNamespace))
}

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
	// defaultNamespace is that of a release whose request names none.
	defaultNamespace = "default"
	// maxHistory is how many revisions are kept, as by the helm command.
	maxHistory = 10
	// settleTimeout is what settling may take at least: it only looks and records.
	settleTimeout = time.Minute
	// windUp is how long Helm may take after the end of its time to record what it has
	// failed in.
	windUp = 10 * time.Second
)

// asHelm has objects be applied with the field manager of the helm command: what one of both
// has applied, the other changes without a conflict.
var asHelm = sync.OnceFunc(func() { kube.ManagedFieldsManager = "helm" })

// operation is a request at work.
type operation struct {
	request message.Request
	kube    kubernetes.Interface
	helm    *action.Configuration
	client  *followed
	end     time.Time // of the request; zero before its chart was read
	say     func(progress string)
}

// Run does what is asked, in the cluster that a configuration leads to, and returns what
// came of it. It says what it does on the way. The time of a request begins when its chart
// was read. Nothing goes on in the process after it returns because that is about to end.
func Run(ctx context.Context, request message.Request, cluster *rest.Config, say func(progress string)) message.Answer {
	if request.Verb == message.Settle {
		request.Timeout = max(request.Timeout, settleTimeout)
	}
	o := &operation{request: request, say: say}
	// The chart is read first: nothing of the cluster is touched if it is none.
	loaded, values, err := o.read(ctx)
	if err != nil {
		return message.Answer{Failure: o.failureOf(err)}
	}
	o.end = time.Now().Add(request.Timeout)
	ctx, cancel := context.WithDeadline(ctx, o.end.Add(windUp))
	defer cancel()
	done := make(chan message.Answer, 1)
	go func() { // Helm does not heed a context everywhere
		released, err := o.do(ctx, cluster, loaded, values)
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

// do does what is asked with the release. Helm waits for nothing beyond the end.
func (o *operation) do(ctx context.Context, config *rest.Config, loaded *chart.Chart, values map[string]any) (*message.Release, error) {
	var err error
	if o.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("client of the cluster: %w", err)
	}
	if err := o.locate(ctx); err != nil {
		return nil, err
	}
	if err := o.connect(config); err != nil {
		return nil, err
	}
	switch o.request.Verb {
	case message.Install:
		return o.install(ctx, loaded, values)
	case message.Upgrade:
		return o.upgrade(ctx, loaded, values)
	case message.Uninstall:
		return o.uninstall(ctx)
	case message.Settle:
		return o.settle()
	default:
		return nil, fmt.Errorf("%w: nothing is known of %.32q", errRequest, o.request.Verb)
	}
}

// read reads the chart and its values, of what takes some.
func (o *operation) read(ctx context.Context) (*chart.Chart, map[string]any, error) {
	if err := chartutil.ValidateReleaseName(o.request.Name); err != nil {
		return nil, nil, fmt.Errorf("%w: name %.64q of the release: %w", errRequest, o.request.Name, err)
	}
	if o.request.Verb != message.Install && o.request.Verb != message.Upgrade {
		return nil, nil, nil
	}
	if o.request.Chart.URL == "" {
		return nil, nil, fmt.Errorf("%w: it names no chart (helm.chartURL)", errRequest)
	}
	allowed, err := chart.ReadAllowed(o.request.Allowed)
	if err != nil {
		return nil, nil, err
	}
	source := chart.NewSource(allowed, o.request.Chart.InsecureSkipVerify)
	o.say("reading chart " + o.request.Chart.URL)
	loaded, err := source.Get(ctx, o.request.Chart)
	if err != nil {
		return nil, nil, err
	}
	values, err := o.values(ctx, source)
	return loaded, values, err
}

// values merges those of a file and those of the request, which win.
func (o *operation) values(ctx context.Context, source *chart.Source) (map[string]any, error) {
	ours, err := chart.ReadValues(o.request.Values)
	if err != nil || o.request.ValuesURL == "" {
		return ours, err
	}
	raw, err := source.Values(ctx, o.request.ValuesURL)
	if err != nil {
		return nil, err
	}
	theirs, err := chart.ReadValues(raw)
	if err != nil {
		return nil, fmt.Errorf("values %s: %w", o.request.ValuesURL, err)
	}
	return merge(theirs, ours), nil
}

// merge puts values over others, as the helm command does with several files.
func merge(under, over map[string]any) map[string]any {
	for key, value := range over {
		below, isMap := under[key].(map[string]any)
		if above, ok := value.(map[string]any); ok && isMap {
			value = merge(below, above)
		}
		under[key] = value
	}
	return under
}

// connect makes Helm's configuration.
func (o *operation) connect(config *rest.Config) error {
	asHelm()
	o.helm = action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	reached := newCluster(config, o.request.Namespace)
	if err := o.helm.Init(reached, o.request.Namespace, "secret"); err != nil {
		return fmt.Errorf("helm: %w", err)
	}
	client, ok := o.helm.KubeClient.(*kube.Client)
	if !ok {
		return fmt.Errorf("helm: its client is a %T", o.helm.KubeClient)
	}
	client.Namespace = o.request.Namespace
	o.client = &followed{Client: client, say: o.say, end: o.end, discovery: o.kube.Discovery(), mapper: reached.ToRESTMapper}
	o.helm.KubeClient = o.client
	o.helm.Releases.MaxHistory = maxHistory
	return nil
}

func (o *operation) strategy() kube.WaitStrategy {
	if o.request.Wait {
		return kube.StatusWatcherStrategy
	}
	return kube.HookOnlyStrategy
}

// subject names the release.
func (o *operation) subject() string {
	return fmt.Sprintf("release %s in namespace %s", o.request.Name, cmp.Or(o.request.Namespace, defaultNamespace))
}

// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
)

const (
	// liveClusters is the path of the clusters in the live API of the hub.
	liveClusters = "/apis/live.spokelet.io/v1alpha1/clusters"
	// answerTimeout bounds a list, and the beginning of a watch.
	answerTimeout = 30 * time.Second
	// watchLife is after how long a server ends a watch. A list follows.
	watchLife = 10 * time.Minute
)

// A hub has clients of itself and of its clusters, which share their connections.
type hub struct {
	config *rest.Config
	http   *http.Client
	base   *url.URL
	codecs serializer.CodecFactory
}

func newHub(kube *rest.Config) (*hub, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, bundlev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	config := rest.CopyConfig(kube)
	config.QPS = -1    // a tail asks seldom, and a limit that all share would delay all
	config.Timeout = 0 // logs and watches last
	config.WarningHandler = rest.NoWarnings{}
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	return &hub{config: config, http: client, base: base, codecs: serializer.NewCodecFactory(scheme)}, nil
}

// bundles are the WorkerBundles of an account.
func (h *hub) bundles(namespace, selector string) (objects, error) {
	client, err := h.client(h.base, "/apis", bundlev1alpha1.GroupVersion)
	return objects{
		client: client, namespace: namespace, resource: "workerbundles", selector: selector,
		list: func() runtime.Object { return &bundlev1alpha1.WorkerBundleList{} },
	}, err
}

// pods are those of an account in one cluster.
func (h *hub) pods(cluster, namespace, selector string) (objects, error) {
	client, err := h.client(h.base.JoinPath(liveClusters, url.PathEscape(cluster), "proxy"), "/api", corev1.SchemeGroupVersion)
	return objects{
		client: client, namespace: namespace, resource: "pods", selector: selector,
		list: func() runtime.Object { return &corev1.PodList{} },
	}, err
}

func (h *hub) client(base *url.URL, apiPath string, version schema.GroupVersion) (*rest.RESTClient, error) {
	config := rest.CopyConfig(h.config)
	config.Host, config.APIPath, config.GroupVersion = base.String(), apiPath, &version
	config.NegotiatedSerializer = h.codecs.WithoutConversion()
	return rest.RESTClientForConfigAndClient(config, h.http)
}

// objects are those of one kind in a namespace, with a label.
type objects struct {
	client                        *rest.RESTClient
	namespace, resource, selector string

	list func() runtime.Object
}

func (o objects) get() *rest.Request {
	// Attempts of the client's own would hide for a while that a cluster is away.
	return o.client.Get().Namespace(o.namespace).Resource(o.resource).MaxRetries(0)
}

// follow calls changed with all objects by name, first when they were listed, then after each
// change, until the watch ends. ok is called when it has begun.
func (o objects) follow(ctx context.Context, ok func(), changed func(map[string]metav1.Object)) error {
	current, version, err := o.all(ctx)
	if err != nil {
		return err
	}
	changed(current)
	w, err := o.watch(ctx, version)
	if err != nil {
		return err
	}
	defer w.Stop()
	ok()
	for event := range w.ResultChan() {
		object, err := meta.Accessor(event.Object)
		if err != nil {
			break // it is an error: in general, that the version is no longer kept
		}
		if event.Type == watch.Deleted {
			delete(current, object.GetName())
		} else {
			current[object.GetName()] = object
		}
		changed(current)
	}
	return nil // servers end watches, and if that was a failure, the next list says so
}

func (o objects) all(ctx context.Context) (map[string]metav1.Object, string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	list := o.list()
	if err := o.get().Param("labelSelector", o.selector).Do(ctx).Into(list); err != nil {
		return nil, "", err
	}
	current := map[string]metav1.Object{}
	err := meta.EachListItem(list, func(item runtime.Object) error {
		object, err := meta.Accessor(item)
		if err == nil {
			current[object.GetName()] = object
		}
		return err
	})
	if err != nil {
		return nil, "", err
	}
	listed, err := meta.ListAccessor(list)
	if err != nil {
		return nil, "", err
	}
	return current, listed.GetResourceVersion(), nil
}

// watch returns when the server has begun to answer.
func (o objects) watch(ctx context.Context, version string) (watch.Interface, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	limit := time.AfterFunc(answerTimeout, func() { cancel(context.DeadlineExceeded) })
	w, err := o.get().Param("labelSelector", o.selector).Param("watch", "true").Param("resourceVersion", version).
		Param("timeoutSeconds", strconv.Itoa(int(watchLife.Seconds()))).Watch(ctx)
	if limit.Stop() {
		if err != nil {
			cancel(err)
			return nil, err
		}
		return stopping{Interface: w, cancel: cancel}, nil
	}
	if err == nil {
		w.Stop()
	}
	return nil, context.Cause(ctx)
}

// stopping releases the context of a watch with the watch.
type stopping struct {
	watch.Interface

	cancel context.CancelCauseFunc
}

// Stop implements watch.Interface.
func (s stopping) Stop() {
	s.Interface.Stop()
	s.cancel(nil)
}

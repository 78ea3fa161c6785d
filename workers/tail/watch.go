// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
	"github.com/spokelet/spokelet/workers/spoke"
)

const (
	// answerTimeout bounds a list, and the beginning of a watch.
	answerTimeout = 30 * time.Second
	// watchLife is after how long a server ends a watch. A list follows.
	watchLife = 10 * time.Minute
)

// bundleObject is what is read of a WorkerBundle: the clusters that it is placed on.
type bundleObject struct {
	Metadata metadata `json:"metadata"`
	Status   struct {
		Clusters []struct {
			Name string `json:"name"`
		} `json:"clusters"`
	} `json:"status"`
}

func (p bundleObject) name() string { return p.Metadata.Name }

// A podObject holds the fields of a pod that are used. Clusters write pods, so no large field is
// kept.
type podObject struct {
	Metadata metadata `json:"metadata"`
}

func (p podObject) name() string { return p.Metadata.Name }

type metadata struct {
	Name              string         `json:"name"`
	DeletionTimestamp isPresentField `json:"deletionTimestamp"`
}

// isPresentField is whether a field has a value, which is not kept.
type isPresentField bool

func (g *isPresentField) UnmarshalJSON(value []byte) error {
	*g = string(value) != "null"
	return nil
}

// accountBundles are the WorkerBundles of an account.
func accountBundles(hub spoke.API, namespace, selector string) objectWatcher[bundleObject] {
	return objectWatcher[bundleObject]{
		api: hub, form: spoke.FullObject, path: "/apis/" + bundlev1alpha1.GroupVersion.String() + "/namespaces/" + namespace + "/workerbundles",
		query: url.Values{"labelSelector": {selector}},
	}
}

// accountPods watches the running pods of an account in one cluster, of which at most so many are
// kept.
func accountPods(cluster spoke.API, namespace, selector string, most int) objectWatcher[podObject] {
	return objectWatcher[podObject]{
		api: cluster, form: spoke.Metadata, path: podsPath(namespace), maxObjects: most,
		query: url.Values{"labelSelector": {selector}, "fieldSelector": {"status.phase=Running"}},
	}
}

func podsPath(namespace string) string { return "/api/v1/namespaces/" + namespace + "/pods" }

// objectWatcher are those of one kind in a namespace, with a label.
type objectWatcher[T interface{ name() string }] struct {
	api        spoke.API
	form, path string
	query      url.Values
	maxObjects int // that are known; 0 is no bound
}

// queryWith returns the query with additional parameters.
func (o objectWatcher[T]) queryWith(parameters ...string) url.Values {
	query := url.Values{}
	maps.Copy(query, o.query)
	for i := 0; i < len(parameters); i += 2 {
		query.Set(parameters[i], parameters[i+1])
	}
	return query
}

// run calls changed with all objects by name, after the list and after each change, until the watch
// ends. Objects with invalid names share the empty name. ok is called when the watch has started.
func (o objectWatcher[T]) run(ctx context.Context, ok func(), changed func(map[string]T)) error {
	current, version, err := o.list(ctx)
	if err != nil {
		return err
	}
	changed(current)
	w, end, err := o.watch(ctx, version)
	if err != nil {
		return err
	}
	defer end()
	ok()
	for {
		event, err := w.Next()
		switch {
		case errors.Is(err, spoke.ErrTooLarge), errors.Is(err, spoke.ErrExhausted):
			return err
		case err != nil, event.Type == "ERROR": // mostly because the resourceVersion is too old
			return nil // servers end watches, and if that was a failure, the next list says so
		case event.Type == "BOOKMARK":
			continue
		case event.Type == "DELETED":
			delete(current, validName(event.Object))
		default:
			o.add(current, event.Object)
		}
		changed(current)
	}
}

func (o objectWatcher[T]) add(current map[string]T, object T) {
	name := validName(object)
	if _, known := current[name]; known || o.maxObjects == 0 || len(current) < o.maxObjects {
		current[name] = object
	}
}

// validName returns the name of an object if it may become part of a path, else an empty string.
func validName(object interface{ name() string }) string {
	if name := object.name(); len(validation.IsDNS1123Subdomain(name)) == 0 {
		return name
	}
	return ""
}

func (o objectWatcher[T]) list(ctx context.Context) (map[string]T, string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	query := o.query
	if o.maxObjects > 0 {
		query = o.queryWith("limit", strconv.Itoa(o.maxObjects))
	}
	current := map[string]T{}
	version, err := spoke.List(ctx, o.api, o.form, o.path, query, func(object T) { o.add(current, object) })
	return current, version, err
}

// watch starts a watch and returns when the server has begun to answer. The caller calls end.
func (o objectWatcher[T]) watch(ctx context.Context, version string) (w *spoke.Watch[T], end func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	limit := time.AfterFunc(answerTimeout, func() { cancel(context.DeadlineExceeded) })
	w, err = spoke.NewWatch[T](ctx, o.api, o.form, o.path,
		o.queryWith("watch", "true", "resourceVersion", version, "timeoutSeconds", strconv.Itoa(int(watchLife.Seconds()))))
	if !limit.Stop() && err == nil {
		w.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel(err)
		return nil, nil, err
	}
	return w, func() { w.Close(); cancel(nil) }, nil
}

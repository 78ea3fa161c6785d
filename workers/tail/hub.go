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

// placed is what is read of a WorkerBundle: the clusters that it is placed on.
type placed struct {
	Metadata metadata `json:"metadata"`
	Status   struct {
		Clusters []struct {
			Name string `json:"name"`
		} `json:"clusters"`
	} `json:"status"`
}

func (p placed) name() string { return p.Metadata.Name }

// A podObject is what is read of a pod. A cluster writes it: nothing of it is kept that is large.
type podObject struct {
	Metadata metadata `json:"metadata"`
}

func (p podObject) name() string { return p.Metadata.Name }

type metadata struct {
	Name              string `json:"name"`
	DeletionTimestamp given  `json:"deletionTimestamp"`
}

// given is whether a field has a value, which is not kept.
type given bool

// UnmarshalJSON implements json.Unmarshaler.
func (g *given) UnmarshalJSON(value []byte) error {
	*g = string(value) != "null"
	return nil
}

// bundlesOf are the WorkerBundles of an account.
func bundlesOf(hub spoke.API, namespace, selector string) objects[placed] {
	return objects[placed]{
		api: hub, form: spoke.Whole, path: "/apis/" + bundlev1alpha1.GroupVersion.String() + "/namespaces/" + namespace + "/workerbundles",
		query: url.Values{"labelSelector": {selector}},
	}
}

// podsOf are those pods of an account that run in one cluster, so many at most: others are not
// known.
func podsOf(cluster spoke.API, namespace, selector string, most int) objects[podObject] {
	return objects[podObject]{
		api: cluster, form: spoke.Metadata, path: podsPath(namespace), most: most,
		query: url.Values{"labelSelector": {selector}, "fieldSelector": {"status.phase=Running"}},
	}
}

func podsPath(namespace string) string { return "/api/v1/namespaces/" + namespace + "/pods" }

// objects are those of one kind in a namespace, with a label.
type objects[T interface{ name() string }] struct {
	api        spoke.API
	form, path string
	query      url.Values
	most       int // that are known; 0 is no bound
}

// with returns the query with more parameters.
func (o objects[T]) with(parameters ...string) url.Values {
	query := url.Values{}
	maps.Copy(query, o.query)
	for i := 0; i < len(parameters); i += 2 {
		query.Set(parameters[i], parameters[i+1])
	}
	return query
}

// follow calls changed with all objects by name, first when they were listed, then after each
// change, until the watch ends. Those whose names are none are one, without a name. ok is
// called when the watch has begun.
func (o objects[T]) follow(ctx context.Context, ok func(), changed func(map[string]T)) error {
	current, version, err := o.all(ctx)
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
		case err != nil, event.Type == "ERROR": // in general, that the version is no longer kept
			return nil // servers end watches, and if that was a failure, the next list says so
		case event.Type == "BOOKMARK":
			continue
		case event.Type == "DELETED":
			delete(current, nameOf(event.Object))
		default:
			o.add(current, event.Object)
		}
		changed(current)
	}
}

func (o objects[T]) add(current map[string]T, object T) {
	name := nameOf(object)
	if _, known := current[name]; known || o.most == 0 || len(current) < o.most {
		current[name] = object
	}
}

// nameOf returns a name that may become part of a path, or none.
func nameOf(object interface{ name() string }) string {
	if name := object.name(); len(validation.IsDNS1123Subdomain(name)) == 0 {
		return name
	}
	return ""
}

func (o objects[T]) all(ctx context.Context) (map[string]T, string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	query := o.query
	if o.most > 0 {
		query = o.with("limit", strconv.Itoa(o.most))
	}
	current := map[string]T{}
	version, err := spoke.List(ctx, o.api, o.form, o.path, query, func(object T) { o.add(current, object) })
	return current, version, err
}

// watch returns when the server has begun to answer. The caller calls end.
func (o objects[T]) watch(ctx context.Context, version string) (w *spoke.Watch[T], end func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	limit := time.AfterFunc(answerTimeout, func() { cancel(context.DeadlineExceeded) })
	w, err = spoke.NewWatch[T](ctx, o.api, o.form, o.path,
		o.with("watch", "true", "resourceVersion", version, "timeoutSeconds", strconv.Itoa(int(watchLife.Seconds()))))
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

// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
)

const (
	// maxStatus bounds the Status of a failed request.
	maxStatus = 64 << 10
	// maxRetryAfter is the longest that a cluster may have a caller wait, in
	// seconds. Clients obey.
	maxRetryAfter = 60
)

// queryCluster queries one cluster. The error is an APIStatus.
func (s *viewStorage) queryCluster(ctx context.Context, cluster string, q *viewQuery, t *viewRequest, limit int64) (*livev1alpha1.ClusterView, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limits.ViewTimeout)
	defer cancel()
	session, err := s.sessions.Get(ctx, cluster)
	if err != nil {
		return nil, newUnreachableError(cluster, err)
	}
	c, err := s.catalogs.get(ctx, cluster, session, t.caller, nil)
	if err != nil {
		return nil, newRequestError(ctx, cluster, err)
	}
	r, found := c.find(q.resource)
	if found {
		view, err := s.fetch(ctx, cluster, session, r, q, t, limit)
		if !apierrors.IsNotFound(err) || q.name != "" {
			return view, err
		}
		// A list is never not found: its resource is gone since the catalog was
		// read.
	}
	fresh, err := s.catalogs.get(ctx, cluster, session, t.caller, c)
	if err != nil {
		return nil, newRequestError(ctx, cluster, err)
	}
	r, found = fresh.find(q.resource)
	if !found {
		return nil, newResourceNotFound(cluster, q.resource.raw)
	}
	return s.fetch(ctx, cluster, session, r, q, t, limit)
}

func newResourceNotFound(cluster, resource string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotFound,
		Reason:  metav1.StatusReasonNotFound,
		Message: fmt.Sprintf("cluster %q: it has no resource type %q", cluster, resource),
		Details: &metav1.StatusDetails{Group: livev1alpha1.GroupName, Kind: clustersResource, Name: cluster},
	}}
}

// newRequestError is the error of a request that was sent. What the cluster's API
// server said about it stays as it is.
func newRequestError(ctx context.Context, cluster string, err error) error {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return &apierrors.StatusError{ErrStatus: status.Status()}
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return apierrors.NewTimeoutError(fmt.Sprintf("cluster %q: it did not answer in time", cluster), 0)
	}
	if errors.Is(err, errMemory) {
		return apierrors.NewTooManyRequests(fmt.Sprintf("cluster %q: %v", cluster, errMemory), 1)
	}
	return newUnreachableError(cluster, err)
}

func (s *viewStorage) fetch(ctx context.Context, cluster string, session Session, r resource, q *viewQuery, t *viewRequest, limit int64) (*livev1alpha1.ClusterView, error) {
	target, err := q.buildURL(cluster, r)
	if err != nil {
		return nil, err
	}
	req := (&http.Request{
		Method: http.MethodGet,
		URL:    target,
		Host:   kubeDoor,
		Header: http.Header{"Accept": {q.acceptHeader()}, "User-Agent": {"spokelet-hub"}},
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	setIdentity(ctx, req.Header, t.caller)
	res, err := session.RoundTrip(req)
	if err != nil {
		return nil, newRequestError(ctx, cluster, err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, readError(cluster, res)
	}
	held := t.reserveMemory(cluster)
	view, err := q.readResponse(res.Body, limit, held, r)
	if err != nil {
		held.close()
		return nil, newRequestError(ctx, cluster, err)
	}
	view.Cluster = cluster
	if !view.Complete && view.Message == "" && view.Continue == "" {
		view.Message = fmt.Sprintf("answer was cut at %d bytes: narrow the scope, set a limit or ask for another output", limit)
	}
	return view, nil
}

// buildURL returns the URL of a query in a cluster. That the resource is namespaced, or
// not, is known only now.
func (q *viewQuery) buildURL(cluster string, r resource) (*url.URL, error) {
	base := "/apis/" + r.gv.Group + "/" + r.gv.Version
	if r.gv.Group == "" {
		base = "/api/" + r.gv.Version
	}
	switch {
	case r.namespaced && q.namespace == "" && !q.allNamespaces:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("spec.scope: cluster %q: %s are namespaced: set namespace or allNamespaces", cluster, r.plural))
	case !r.namespaced && (q.namespace != "" || q.allNamespaces):
		return nil, apierrors.NewBadRequest(fmt.Sprintf("spec.scope: cluster %q: %s are not namespaced: set neither namespace nor allNamespaces", cluster, r.plural))
	case q.namespace != "":
		base += "/namespaces/" + q.namespace
	}
	base += "/" + r.plural
	if q.name != "" {
		base += "/" + q.name
	}
	return &url.URL{Scheme: "http", Host: kubeDoor, Path: base, RawQuery: q.encodeParameters()}, nil
}

func (q *viewQuery) encodeParameters() string {
	v := url.Values{}
	set := func(key, value string) {
		if value != "" {
			v.Set(key, value)
		}
	}
	set("labelSelector", q.labels)
	set("fieldSelector", q.fields)
	set("continue", q.continueToken)
	if q.output == livev1alpha1.OutputTable && !q.allNamespaces {
		// The cells say all that is printed. Of many namespaces, which one a row
		// is of stands in its object's metadata alone.
		set("includeObject", string(metav1.IncludeNone))
	}
	if q.limit > 0 {
		v.Set("limit", strconv.FormatInt(q.limit, 10))
	}
	return v.Encode()
}

func (q *viewQuery) acceptHeader() string {
	const as = "application/json;g=meta.k8s.io;v=v1;as="
	switch {
	case q.output == livev1alpha1.OutputTable:
		return as + "Table"
	case q.output == livev1alpha1.OutputMetadata && q.name != "":
		return as + "PartialObjectMetadata"
	case q.output == livev1alpha1.OutputMetadata:
		return as + "PartialObjectMetadataList"
	default:
		return acceptJSON
	}
}

// readError is what the cluster said of a request that failed. An answer that
// is no refusal gets a Status of its code.
func readError(cluster string, res *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxStatus))
	status := metav1.Status{}
	if err == nil && json.Unmarshal(body, &status) == nil && status.Kind == "Status" {
		if refusal, ok := parseFailure(status); ok {
			return refusal
		}
	}
	return newStatusError(cluster, res.StatusCode)
}

// parseFailure is a cluster's Status as an error, unless it is none. The caller is
// answered with its code, which the cluster chooses: one that means success
// would pass for an answer, and one that HTTP does not have ends the handler.
func parseFailure(status metav1.Status) (*apierrors.StatusError, bool) {
	if status.Status != metav1.StatusFailure || !isErrorCode(int(status.Code)) {
		return nil, false
	}
	if d := status.Details; d != nil {
		d.RetryAfterSeconds = min(max(d.RetryAfterSeconds, 0), maxRetryAfter)
	}
	return &apierrors.StatusError{ErrStatus: status}, true
}

// isErrorCode reports whether code says that a request failed.
func isErrorCode(code int) bool {
	return code >= http.StatusBadRequest && code <= 599
}

// newStatusError is the error of an answer that has a code and no Status.
func newStatusError(cluster string, code int) error {
	shown := code
	if !isErrorCode(code) {
		shown = http.StatusBadGateway
	}
	generic := apierrors.NewGenericServerResponse(shown, http.MethodGet, livev1alpha1.Resource(clustersResource), cluster, "", 0, true)
	generic.ErrStatus.Message = fmt.Sprintf("cluster %q: its API server answered %d without a Status", cluster, code)
	return generic
}

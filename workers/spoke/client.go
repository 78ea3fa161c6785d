// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package spoke

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/internal/quota"
)

const (
	// clusters is the path of the clusters in the live API of the hub.
	clusters = "/apis/live.spokelet.io/v1alpha1/clusters/"
	// errorBodyTimeout is how long a refusal may take once its header is there.
	errorBodyTimeout = 10 * time.Second
	// maxErrorMessage bounds what is repeated of a refusal, in bytes.
	maxErrorMessage = 1 << 10
)

// Bounds of memory for what was read and not yet decoded.
const (
	clusterMemory = 24 << 20
	allMemory     = 64 << 20
	// guaranteed is what a cluster may hold however much the others do.
	guaranteed = 1 << 20
)

// Bounds of what is read over time.
var (
	clusterRate = quota.Rate{PerSecond: 4 << 20, Burst: 8 << 20}
	allRate     = quota.Rate{PerSecond: 64 << 20, Burst: 128 << 20}
)

// A Client reads from the hub and, through it, from clusters. Its methods may be called by
// several goroutines.
type Client struct {
	http      *http.Client
	transport *http.Transport
	base      *url.URL
	memory    *quota.Memory
}

// New returns a client with the identity of the configuration.
func New(kube *rest.Config) (*Client, error) {
	base, _, err := rest.DefaultServerUrlFor(kube)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	if base.Path == "" {
		base.Path = "/" // JoinPath would leave paths without it
	}
	pool, err := newTransport(kube)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	identified, err := rest.HTTPWrappersForConfig(kube, pool)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	bounded := &boundedTransport{next: identified, path: base.JoinPath(clusters).Path, rate: quota.NewWrites(clusterRate, allRate)}
	return &Client{
		// A cluster sends nobody elsewhere.
		http:      &http.Client{Transport: bounded, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		transport: pool, base: base, memory: quota.NewGuaranteedMemory(clusterMemory, allMemory, guaranteed),
	}, nil
}

// Close closes the connections that nobody uses.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Hub returns the API of the hub.
func (c *Client) Hub() API { return API{client: c, base: c.base} }

// Cluster returns the API of a cluster. The error is of a name that is none of a cluster.
func (c *Client) Cluster(name string) (API, error) {
	// The name becomes part of a path.
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return API{}, fmt.Errorf("cluster %q: this is no name of a cluster", name)
	}
	return API{client: c, base: c.base.JoinPath(clusters, name, "proxy"), cluster: name}, nil
}

// An API is that of the hub or of a cluster.
type API struct {
	client  *Client
	base    *url.URL
	cluster string // none of the hub
}

// Account opens an account of the cluster's memory, for what is kept of a stream while it is
// read. The caller closes it. It is nil, and has no bounds, for the hub.
func (a API) Account() *quota.Account {
	if a.cluster == "" {
		return nil
	}
	return a.client.memory.Account(a.cluster)
}

// Stream asks once and returns the body of the answer, which the caller reads as it comes, and
// closes. Names in the path were checked by the caller. A refusal is an APIStatus.
func (a API) Stream(ctx context.Context, method, path string, query url.Values) (io.ReadCloser, error) {
	return a.do(ctx, method, "*/*", path, query)
}

func (a API) do(ctx context.Context, method, accept, path string, query url.Values) (io.ReadCloser, error) {
	target := a.base.JoinPath(path)
	target.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, target.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	res, err := a.client.http.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode/100 == 2 {
		return res.Body, nil
	}
	defer res.Body.Close()
	return nil, a.statusError(res)
}

// statusError is what the server said of a request that failed, cut to what is worth repeating.
func (a API) statusError(res *http.Response) error {
	late := time.AfterFunc(errorBodyTimeout, func() { res.Body.Close() })
	defer late.Stop()
	account := a.Account()
	defer account.Close()
	var said struct {
		Kind    string              `json:"kind"`
		Message string              `json:"message"`
		Reason  metav1.StatusReason `json:"reason"`
	}
	err := account.Grow(costPerByte * MaxErrorBody)
	if err == nil {
		var text []byte
		if text, err = io.ReadAll(res.Body); err == nil {
			err = json.Unmarshal(text, &said)
		}
	}
	if err != nil || said.Kind != "Status" {
		said.Reason, said.Message = metav1.StatusReasonUnknown, fmt.Sprintf("the answer was %d %s", res.StatusCode, http.StatusText(res.StatusCode))
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(res.StatusCode), //nolint:gosec // three digits
		Reason: said.Reason[:min(len(said.Reason), maxErrorMessage)], Message: said.Message[:min(len(said.Message), maxErrorMessage)],
	}}
}

// ErrExhausted is wrapped by the failure of reading when the cluster, or all of them, hold as much
// memory as they may.
var ErrExhausted = quota.ErrExhausted

// ErrTooLarge is wrapped by the failure of reading what is larger than a bound.
var ErrTooLarge = errors.New("it is larger than what is read of a cluster")

// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubedoor

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/impersonation"
)

var (
	// errNode is wrapped by every refusal of what the hub's virtual kubelet asks
	// for. It names the principal, for there is no user to name.
	errNode = errors.New("kube door refuses the node principal")
	// errNoPod says that no pod of that UID runs here for the hub. It is a 404.
	errNoPod = errors.New("not found")
)

// nodeRequest is one kind of request that the virtual kubelet may make of a pod.
type nodeRequest struct {
	upgrade bool
	methods []string
	// queries are the parameters that may be given. Whatever else there is, or
	// will be in a newer API server, is refused: some of them, as
	// insecureSkipTLSVerifyBackend, are the owner's to use.
	queries []string
}

// nodeRequests are all that a kubelet serves of a pod, by the pod's subresource.
var nodeRequests = map[string]nodeRequest{
	"log": {
		methods: []string{http.MethodGet},
		queries: []string{"container", "follow", "previous", "sinceSeconds", "sinceTime", "timestamps", "tailLines", "limitBytes", "stream"},
	},
	"exec": {
		upgrade: true, methods: []string{http.MethodGet, http.MethodPost},
		queries: []string{"container", "command", "stdin", "stdout", "stderr", "tty"},
	},
	"attach": {
		upgrade: true, methods: []string{http.MethodGet, http.MethodPost},
		queries: []string{"container", "stdin", "stdout", "stderr", "tty"},
	},
	"portforward": {
		upgrade: true, methods: []string{http.MethodGet, http.MethodPost},
		queries: []string{"ports"},
	},
}

// admitNode decides about a request of the hub's virtual kubelet on a canonical
// path. It is for one of the hub's pods by its UID, and for nothing else; the
// ceiling of the hub's users is not that of its pods. Errors wrap errNode or
// errNoPod.
func (d *Door) admitNode(r *http.Request, path, protocol string, p impersonation.Principal) (*admitted, error) {
	if d.cfg.Pods == nil {
		return nil, fmt.Errorf("%w: this agent runs no pods", errNode)
	}
	key, subresource, err := parseNodePath(path)
	if err != nil {
		return nil, err
	}
	query, err := nodeRequests[subresource].check(r, protocol)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errNode, subresource, err)
	}
	if p.PodUID == "" {
		return nil, fmt.Errorf("%w: UID of the pod is not stated", errNode)
	}
	namespace, uid, ok := d.cfg.Pods.Locate(key)
	if !ok || string(uid) != p.PodUID {
		return nil, fmt.Errorf("pods %q %w", key.Name, errNoPod)
	}
	return &admitted{
		path:     "/api/v1/namespaces/" + namespace + "/pods/" + key.Name + "/" + subresource,
		query:    &query,
		protocol: protocol,
		identity: identity{user: d.cfg.NodeAccount},
	}, nil
}

// parseNodePath reads /api/v1/namespaces/NAMESPACE/pods/NAME/SUBRESOURCE.
func parseNodePath(path string) (key wire.PodKey, subresource string, err error) {
	parts := strings.Split(path, "/")
	if len(parts) != 8 || parts[0] != "" || parts[1] != "api" || parts[2] != "v1" || parts[3] != "namespaces" || parts[5] != "pods" {
		return wire.PodKey{}, "", fmt.Errorf("%w: path is not of a pod's subresource", errNode)
	}
	if _, ok := nodeRequests[parts[7]]; !ok {
		return wire.PodKey{}, "", fmt.Errorf("%w: subresource %q is not a kubelet's", errNode, parts[7])
	}
	key, err = wire.ParsePodKey(parts[4] + "/" + parts[6])
	if err != nil {
		return wire.PodKey{}, "", fmt.Errorf("%w: %w", errNode, err)
	}
	return key, parts[7], nil
}

// check returns the query to forward, in the one form in which it was read.
func (n nodeRequest) check(r *http.Request, protocol string) (query string, err error) {
	switch {
	case !slices.Contains(n.methods, r.Method):
		return "", fmt.Errorf("method %s is not served", r.Method)
	case n.upgrade && protocol == "":
		return "", errors.New("it is no upgrade")
	case !n.upgrade && protocol != "":
		return "", errors.New("it is an upgrade")
	case r.ContentLength != 0:
		return "", errors.New("it has a body")
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return "", errors.New("its query is malformed")
	}
	for name := range values {
		if !slices.Contains(n.queries, name) {
			return "", fmt.Errorf("parameter %.64q is not passed on", name)
		}
	}
	return values.Encode(), nil
}

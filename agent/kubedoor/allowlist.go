// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubedoor

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// errNotAllowed is wrapped by every refusal of the owner's allow-list.
var errNotAllowed = errors.New("kube door of this cluster does not allow it")

// checkAllowed refuses a canonical path outside the allowed namespaces.
func (d *Door) checkAllowed(method, path string) error {
	if len(d.cfg.Namespaces) == 0 {
		return nil
	}
	if isDiscovery(method, path) {
		return nil
	}
	namespace, object := namespaceOf(path)
	switch {
	case namespace == "":
		return fmt.Errorf("%w: only requests within namespaces are allowed", errNotAllowed)
	case !slices.Contains(d.cfg.Namespaces, namespace):
		return fmt.Errorf("%w: namespace %q is not among the allowed ones", errNotAllowed, namespace)
	case object && !isRead(method):
		return fmt.Errorf("%w: namespace %q itself cannot be changed", errNotAllowed, namespace)
	default:
		return nil
	}
}

// namespaceOf returns the namespace that a resource path lies in, empty for
// any other path; object says that the path is the Namespace's own or one of
// its subresources.
func namespaceOf(path string) (namespace string, object bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) >= 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) >= 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return "", false
	}
	// The legacy form of a watch; its twin "proxy" is long gone.
	if len(parts) > 0 && parts[0] == "watch" {
		parts = parts[1:]
	}
	if len(parts) < 2 || parts[0] != "namespaces" {
		return "", false
	}
	// These two are read by the API server as parts of the Namespace object.
	object = len(parts) == 2 || (len(parts) == 3 && (parts[2] == "status" || parts[2] == "finalize"))
	return parts[1], object
}

// isDiscovery accepts what a client reads to learn which resources exist. No
// object is served there.
func isDiscovery(method, path string) bool {
	if !isRead(method) {
		return false
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch parts[0] {
	case "version":
		return len(parts) == 1
	case "api":
		return len(parts) <= 2
	case "apis":
		return len(parts) <= 3
	case "openapi":
		return true
	default:
		return false
	}
}

func isRead(method string) bool {
	return method == http.MethodGet || method == http.MethodHead
}

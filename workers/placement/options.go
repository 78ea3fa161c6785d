// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/workers/tenant"
)

// Route is how users of a cluster reach scripts there.
type Route string

// Routes.
const (
	// RouteNone: by Services alone.
	RouteNone Route = "None"
	// RouteIngress: by an Ingress of the account.
	RouteIngress Route = "Ingress"
	// RouteGateway: by an HTTPRoute for each script.
	RouteGateway Route = "Gateway"
)

// Rewrite is how an Ingress takes the name of the script off the path.
type Rewrite string

// Rewrites.
const (
	// RewriteNone leaves the path as it is: the script sees its own name in it.
	RewriteNone Rewrite = ""
	// RewriteNginx is for ingress-nginx.
	RewriteNginx Rewrite = "Nginx"
)

// Options are how bundles run, in all clusters.
type Options struct {
	// Route to the scripts. Default: RouteNone.
	Route Route `json:"route,omitempty"`
	// HostSuffix is what the own names of accounts end in, for routes: account 1234 has
	// 1234.workers.example where it is workers.example. Default: accounts have none.
	HostSuffix string `json:"hostSuffix,omitempty"`
	// Ingress is for RouteIngress.
	Ingress Ingress `json:"ingress,omitempty"`
	// Gateway is for RouteGateway.
	Gateway Gateway `json:"gateway,omitempty"`
	// MinReplicas and MaxReplicas bound the autoscaler. Default: 1, and the double of
	// MinReplicas but at least 5.
	MinReplicas int32 `json:"minReplicas,omitempty"`
	MaxReplicas int32 `json:"maxReplicas,omitempty"`
	// Resources of a pod. The autoscaler goes by the CPU that is requested. Default: a
	// tenth of a CPU and 64 MiB are requested.
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`
	// Drain is how long a pod still serves after it was told to go, as it takes a while
	// until nobody asks it any more. Default: 5 s.
	Drain metav1.Duration `json:"drain,omitempty"`
	// TerminationGrace is how long a pod may take to go, Drain included. Default: 30 s.
	TerminationGrace metav1.Duration `json:"terminationGrace,omitempty"`
	// Egress is what pods may reach besides public addresses and the cluster's DNS: a
	// cache of DNS on the nodes, for instance, is at an address of its own.
	Egress []networkingv1.NetworkPolicyEgressRule `json:"egress,omitempty"`
	// TailUser is the name of a user, as API servers of the clusters know it, who may read the
	// logs of all pods of accounts and have trace events written there, by a POST to port
	// bundle.TailPort. At most 253 bytes, no control characters. Default: nobody.
	TailUser string `json:"tailUser,omitempty"`
	// MaxBytes bounds the manifests of a work. Default: 512,000, as the hub's own value
	// admission.manifestLimit.
	MaxBytes int `json:"maxBytes,omitempty"`
}

// Ingress is what Ingresses have in common.
type Ingress struct {
	// Class of the Ingress. Default: the cluster's.
	Class string `json:"class,omitempty"`
	// Annotations for the controller.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Rewrite takes the name of the script off the path. Default: RewriteNone.
	Rewrite Rewrite `json:"rewrite,omitempty"`
}

// Gateway is what HTTPRoutes have in common.
type Gateway struct {
	// ParentRefs name the Gateways. They have to allow routes from the namespaces of
	// accounts.
	ParentRefs []ParentRef `json:"parentRefs,omitempty"`
}

// ParentRef names a Gateway of the clusters.
type ParentRef struct {
	Group       string `json:"group,omitempty"`
	Kind        string `json:"kind,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name"`
	SectionName string `json:"sectionName,omitempty"`
	Port        int32  `json:"port,omitempty"`
}

// Default fills what was left empty.
func (o *Options) Default() {
	if o.Route == "" {
		o.Route = RouteNone
	}
	if o.MinReplicas == 0 {
		o.MinReplicas = 1
	}
	if o.MaxReplicas == 0 {
		o.MaxReplicas = max(2*o.MinReplicas, 5)
	}
	if o.Resources.Requests == nil && o.Resources.Limits == nil {
		o.Resources.Requests = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
		}
	}
	if o.Drain.Duration == 0 {
		o.Drain.Duration = 5 * time.Second
	}
	if o.TerminationGrace.Duration == 0 {
		o.TerminationGrace.Duration = 30 * time.Second
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 512_000
	}
}

// Validate says what is wrong.
func (o *Options) Validate() error {
	return errors.Join(o.validateRoute(), o.validateHostSuffix(), o.validateReplicas(), o.validateTimes(), o.validateTail())
}

func (o *Options) validateRoute() error {
	switch o.Route {
	case RouteNone:
		return nil
	case RouteIngress:
		if r := o.Ingress.Rewrite; r != RewriteNone && r != RewriteNginx {
			return fmt.Errorf("ingress.rewrite: %q is not %s", r, RewriteNginx)
		}
		return nil
	case RouteGateway:
		if len(o.Gateway.ParentRefs) == 0 {
			return errors.New("gateway.parentRefs: a route needs a Gateway")
		}
		for i, ref := range o.Gateway.ParentRefs {
			if ref.Name == "" {
				return fmt.Errorf("gateway.parentRefs[%d]: has no name", i)
			}
		}
		return nil
	default:
		return fmt.Errorf("route: %q is not one of %s, %s and %s", o.Route, RouteNone, RouteIngress, RouteGateway)
	}
}

func (o *Options) validateHostSuffix() error {
	if o.HostSuffix == "" {
		return nil
	}
	if err := tenant.CheckSuffix(o.HostSuffix); err != nil {
		return fmt.Errorf("hostSuffix: %w", err)
	}
	return nil
}

func (o *Options) validateTail() error {
	const most = 253
	switch {
	case len(o.TailUser) > most:
		return fmt.Errorf("tailUser: has %d bytes, at most %d are possible", len(o.TailUser), most)
	case strings.ContainsFunc(o.TailUser, unicode.IsControl):
		return fmt.Errorf("tailUser: %q is no name of a user: it has control characters", o.TailUser)
	}
	return nil
}

func (o *Options) validateReplicas() error {
	switch {
	case o.MinReplicas < 1:
		return fmt.Errorf("minReplicas: %d is less than 1", o.MinReplicas)
	case o.MaxReplicas < o.MinReplicas:
		return fmt.Errorf("maxReplicas: %d is less than minReplicas, %d", o.MaxReplicas, o.MinReplicas)
	}
	// A limit without a request is the request as well.
	_, requested := o.Resources.Requests[corev1.ResourceCPU]
	_, limited := o.Resources.Limits[corev1.ResourceCPU]
	if o.MaxReplicas > o.MinReplicas && !requested && !limited {
		return errors.New("resources.requests: the autoscaler needs a request of cpu")
	}
	return nil
}

func (o *Options) validateTimes() error {
	if d := o.Drain.Duration; d < time.Second || d%time.Second != 0 {
		return fmt.Errorf("drain: %s is not a number of whole seconds", d)
	}
	if d := o.TerminationGrace.Duration; d%time.Second != 0 {
		return fmt.Errorf("terminationGrace: %s is not a number of whole seconds", d)
	}
	if o.Drain.Duration >= o.TerminationGrace.Duration {
		return fmt.Errorf("drain: %s is not less than terminationGrace, %s", o.Drain.Duration, o.TerminationGrace.Duration)
	}
	if o.MaxBytes < 0 {
		return fmt.Errorf("maxBytes: %d is less than 0", o.MaxBytes)
	}
	return nil
}

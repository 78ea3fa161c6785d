// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestDefaultsAreValid(t *testing.T) {
	var o Options
	o.Default()
	if err := o.Validate(); err != nil {
		t.Errorf("defaults are refused: %v", err)
	}
	again := o
	again.Default()
	if diff := cmp.Diff(o, again); diff != "" {
		t.Errorf("defaults have defaults (-first +second):\n%s", diff)
	}
}

func TestDefaultKeepsSetOptions(t *testing.T) {
	limits := corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
	o := Options{
		Route: RouteIngress, MinReplicas: 4, MaxReplicas: 6, Resources: limits, MaxBytes: 9,
		Drain: metav1.Duration{Duration: time.Second}, TerminationGrace: metav1.Duration{Duration: 2 * time.Second},
	}
	want := o
	o.Default()
	if diff := cmp.Diff(want, o); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestValidateRejectsInvalidOptions(t *testing.T) {
	tests := map[string]struct {
		reason string
		change func(*Options)
		want   string
	}{
		"a route that nobody knows":     {reason: "nobody would be led anywhere", change: func(o *Options) { o.Route = "ingress" }, want: `route: "ingress" is not one of`},
		"a rewrite that nobody knows":   {reason: "paths would stay as they are", change: func(o *Options) { o.Route, o.Ingress.Rewrite = RouteIngress, "nginx" }, want: `ingress.rewrite: "nginx" is not Nginx`},
		"a Gateway that is not named":   {reason: "a route belongs to one", change: func(o *Options) { o.Route = RouteGateway }, want: "gateway.parentRefs: "},
		"a Gateway without a name":      {reason: "the server would refuse each route", change: func(o *Options) { o.Route, o.Gateway.ParentRefs = RouteGateway, []ParentRef{{Namespace: "x"}} }, want: "gateway.parentRefs[0]: "},
		"less than one pod":             {reason: "nothing would be served", change: func(o *Options) { o.MinReplicas = -1 }, want: "minReplicas: "},
		"bounds that cross":             {reason: "the server would refuse them", change: func(o *Options) { o.MinReplicas = 9 }, want: "maxReplicas: 5 is less than minReplicas, 9"},
		"no CPU to scale by":            {reason: "the autoscaler would do nothing", change: func(o *Options) { o.Resources.Requests = corev1.ResourceList{} }, want: "resources.requests: "},
		"a suffix with a dot before it": {reason: "the operator puts one there", change: func(o *Options) { o.HostSuffix = ".workers.example" }, want: `hostSuffix: host ".workers.example": "" is not`},
		"a suffix of upper case":        {reason: "hosts have one spelling", change: func(o *Options) { o.HostSuffix = "Workers.example" }, want: `hostSuffix: host "Workers.example": "Workers" is not`},
		"a suffix that leaves no room":  {reason: "the longest account has to fit before it", change: func(o *Options) { o.HostSuffix = strings.Repeat("a.", 106) + "a" }, want: "hostSuffix: host has 213 characters, with an account before it at most 212"},
		"a user of two lines":           {reason: "no user has such a name", change: func(o *Options) { o.TailUser = "hub:\nroot" }, want: `tailUser: "hub:\nroot" is no name`},
		"half a second":                 {reason: "a pod has whole ones", change: func(o *Options) { o.Drain.Duration = 1500 * time.Millisecond }, want: "drain: "},
		"less than nothing":             {reason: "nothing waits that long", change: func(o *Options) { o.Drain.Duration = -time.Second }, want: "drain: "},
		"half a second of grace":        {reason: "a pod has whole ones", change: func(o *Options) { o.TerminationGrace.Duration = 7500 * time.Millisecond }, want: "terminationGrace: "},
		"grace that is over before":     {reason: "requests would be cut off", change: func(o *Options) { o.Drain.Duration = time.Minute }, want: "drain: 1m0s is not less than terminationGrace, 30s"},
		"less than no bytes":            {reason: "no work is that small", change: func(o *Options) { o.MaxBytes = -1 }, want: "maxBytes: "},
		"a user of many letters":        {reason: "it is in each work", change: func(o *Options) { o.TailUser = strings.Repeat("x", 254) }, want: "tailUser: has 254 bytes, at most 253 are possible"},
		"several things at once, first": {reason: "each is said", change: func(o *Options) { o.Route, o.MinReplicas = "x", -1 }, want: "route: "},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var o Options
			o.Default()
			tc.change(&o)
			if err := o.Validate(); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("error is %v, want %q: %s", err, tc.want, tc.reason)
			}
		})
	}
}

func TestValidateAcceptsAnyTailUser(t *testing.T) {
	for _, user := range []string{"", "hub:system:serviceaccount:a:b", "Jane Doe <jane@team.example>", strings.Repeat("x", 253)} {
		var o Options
		o.Default()
		o.TailUser = user
		if err := o.Validate(); err != nil {
			t.Errorf("%q: %v", user, err)
		}
	}
}

func TestEgressAllowsOnlyPublicAddresses(t *testing.T) {
	reached := func(text string) bool {
		address := netip.MustParseAddr(text)
		for _, to := range publicEgress().To {
			block := netip.MustParsePrefix(to.IPBlock.CIDR)
			if !block.Contains(address) {
				continue
			}
			for _, except := range to.IPBlock.Except {
				if netip.MustParsePrefix(except).Contains(address) {
					return false
				}
			}
			return true
		}
		return false
	}
	for address, reason := range map[string]string{
		"10.0.0.1": "private", "172.31.255.255": "private", "192.168.1.1": "private", "100.64.0.1": "a carrier's",
		"169.254.169.254": "a cloud's metadata", "100.100.100.200": "a cloud's metadata", "168.63.129.16": "a cloud's", "127.0.0.1": "the pod's own",
		"0.0.0.0": "the pod's own", "224.0.0.1": "many at once", "255.255.255.255": "all at once", "198.18.0.1": "for measurements",
		"::": "the pod's own", "::1": "the pod's own", "::7f00:1": "the pod's own, in IPv4's oldest form", "64:ff9b::a00:1": "private, translated", "64:ff9b:1::1": "translated, locally",
		"2002:a00:1::": "private, in a tunnel", "2001:0:a00:1::": "private, in a tunnel", "fd00:ec2::254": "a cloud's metadata", "fe80::1": "of the link", "fec0::1": "of the site", "ff02::1": "many at once",
	} {
		if reached(address) {
			t.Errorf("%s is reached: %s", address, reason)
		}
	}
	for address, reason := range map[string]string{
		"1.1.1.1": "public", "172.15.255.255": "just below private", "172.32.0.0": "just above", "100.63.255.255": "just below a carrier's",
		"100.128.0.0": "just above", "223.255.255.255": "the last one", "2606:4700::1111": "public", "2001:4860:4860::8888": "public",
	} {
		if !reached(address) {
			t.Errorf("%s is not reached: %s", address, reason)
		}
	}
}

// An API server refuses a policy with an exception that is not within its block.
func TestEgressExceptionsAreWithinBlocks(t *testing.T) {
	for _, to := range publicEgress().To {
		block := netip.MustParsePrefix(to.IPBlock.CIDR)
		for _, except := range to.IPBlock.Except {
			p := netip.MustParsePrefix(except)
			if p != p.Masked() || !block.Contains(p.Addr()) || p.Bits() <= block.Bits() {
				t.Errorf("%s is not a part of %s", except, block)
			}
		}
	}
}

func TestEgressOptionsAreAdded(t *testing.T) {
	extra := networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "169.254.20.10/32"}}}}
	policy := object(t, mustWork(t, placement(func(p *Placement) { p.Options.Egress = []networkingv1.NetworkPolicyEgressRule{extra} })), "NetworkPolicy")
	egress, _, err := unstructured.NestedSlice(policy.Object, "spec", "egress")
	if err != nil || len(egress) != 3 {
		t.Errorf("egress is %v: %v", egress, err)
	}
}

func TestIngressPaths(t *testing.T) {
	tests := map[string]struct {
		reason string
		change func(*Placement)
		want   []string
	}{
		"with the name in the path": {
			reason: "nobody takes it off", change: func(p *Placement) { p.Options.Ingress = Ingress{} },
			want: []string{"Prefix /1234", "Prefix /hello", "Prefix /wasm_worker"},
		},
		"rewritten by nginx": {
			reason: "an expression catches what follows the name", change: func(*Placement) {},
			want: []string{"ImplementationSpecific /1234(/|$)(.*)", "ImplementationSpecific /hello(/|$)(.*)", "ImplementationSpecific /wasm_worker(/|$)(.*)"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ingress := object(t, mustWork(t, placement(withIngress, tc.change)), "Ingress")
			rules, _, _ := unstructured.NestedSlice(ingress.Object, "spec", "rules")
			paths, _, _ := unstructured.NestedSlice(rules[0].(map[string]any), "http", "paths")
			var got []string
			for _, path := range paths {
				got = append(got, path.(map[string]any)["pathType"].(string)+" "+path.(map[string]any)["path"].(string))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestNoHostMeansNoRoutes(t *testing.T) {
	for _, route := range []func(*Placement){withIngress, withGateway} {
		w := mustWork(t, placement(route, func(p *Placement) { p.Host = "" }))
		if got := append(names(t, w, "Ingress"), names(t, w, "HTTPRoute")...); len(got) > 0 {
			t.Errorf("routes that lead from everybody's hosts are %v", got)
		}
	}
}

func TestRoutesNameAccountHost(t *testing.T) {
	ingress := object(t, mustWork(t, placement(withIngress)), "Ingress")
	rules, _, _ := unstructured.NestedSlice(ingress.Object, "spec", "rules")
	if len(rules) != 1 || rules[0].(map[string]any)["host"] != "team-a.example" {
		t.Errorf("rules of the Ingress are %v", rules)
	}
	routes := 0
	for _, obj := range objects(t, mustWork(t, placement(withGateway))) {
		if obj.GetKind() != "HTTPRoute" {
			continue
		}
		routes++
		if hosts, _, _ := unstructured.NestedStringSlice(obj.Object, "spec", "hostnames"); !slices.Equal(hosts, []string{"team-a.example"}) {
			t.Errorf("hosts of HTTPRoute %s are %q", obj.GetName(), hosts)
		}
	}
	if routes != 3 {
		t.Errorf("there are %d HTTPRoutes of 3 scripts", routes)
	}
}

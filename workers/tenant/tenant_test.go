// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"github.com/spokelet/spokelet/internal/managedcluster"
	"github.com/spokelet/spokelet/workers/api"
)

// at is a time, in hours of one day.
func at(hour int) metav1.Time { return metav1.Date(2026, 1, 2, hour, 0, 0, 0, time.UTC) }

func namespace(name, account string, hour int) corev1.Namespace {
	return corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, CreationTimestamp: at(hour), Labels: map[string]string{api.LabelAccount: account},
	}}
}

func TestResolveAccounts(t *testing.T) {
	leaving := namespace("a", "1234", 1)
	leaving.DeletionTimestamp = new(at(5))
	plain := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "plain", CreationTimestamp: at(1)}}
	tests := map[string]struct {
		reason     string
		namespaces []corev1.Namespace
		of         string
		want       string
		err        error
	}{
		"the only one has its account": {
			reason: "the label says so", namespaces: []corev1.Namespace{namespace("a", "1234", 1)}, of: "a", want: "1234",
		},
		"of two the older has it": {
			reason: "the claim is the namespace's age", namespaces: []corev1.Namespace{namespace("a", "1234", 2), namespace("b", "1234", 1)}, of: "b", want: "1234",
		},
		"of two the younger has none": {
			reason: "its owner is named, for the administrator who set both labels",
			namespaces: []corev1.Namespace{
				namespace("a", "1234", 2), namespace("b", "1234", 1),
			}, of: "a", err: &TakenError{Account: "1234", Namespace: "b"},
		},
		"of two of the same second the name decides": {
			reason: "times are in seconds", namespaces: []corev1.Namespace{namespace("b", "1234", 1), namespace("a", "1234", 1)}, of: "a", want: "1234",
		},
		"one that is being deleted keeps it": {
			reason: "its works may still be there", namespaces: []corev1.Namespace{leaving, namespace("b", "1234", 2)}, of: "b",
			err: &TakenError{Account: "1234", Namespace: "a"},
		},
		"a namespace without the label has none": {
			reason: "nobody gave it one", namespaces: []corev1.Namespace{plain}, of: "plain", err: ErrNoAccount,
		},
		"a namespace that is not known has none": {
			reason: "as one without the label", namespaces: nil, of: "a", err: ErrNoAccount,
		},
		"an empty account is invalid": {
			reason: "a label may be empty", namespaces: []corev1.Namespace{namespace("a", "", 1)}, of: "a", err: &InvalidError{},
		},
		"capitals are invalid": {
			reason: "the account is part of names", namespaces: []corev1.Namespace{namespace("a", "Team", 1)}, of: "a", err: &InvalidError{Account: "Team"},
		},
		"dots are invalid": {
			reason: "a name of a namespace has none", namespaces: []corev1.Namespace{namespace("a", "a.b", 1)}, of: "a", err: &InvalidError{Account: "a.b"},
		},
		"a way out of the repository is invalid": {
			reason: "the account is part of a path", namespaces: []corev1.Namespace{namespace("a", "../b", 1)}, of: "a", err: &InvalidError{Account: "../b"},
		},
		"a second line is invalid": {
			reason: "$ means the end of the text", namespaces: []corev1.Namespace{namespace("a", "1234\n", 1)}, of: "a", err: &InvalidError{Account: "1234\n"},
		},
		"40 characters are valid": {
			reason: "the bound", namespaces: []corev1.Namespace{namespace("a", strings.Repeat("a", 40), 1)}, of: "a", want: strings.Repeat("a", 40),
		},
		"41 characters are invalid": {
			reason: "the bound", namespaces: []corev1.Namespace{namespace("a", strings.Repeat("a", 41), 1)}, of: "a",
			err: &InvalidError{Account: strings.Repeat("a", 41)},
		},
		"a hyphen at the end is invalid": {
			reason: "a name of a namespace has none there", namespaces: []corev1.Namespace{namespace("a", "a-", 1)}, of: "a", err: &InvalidError{Account: "a-"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ResolveAccounts(tc.namespaces).Account(tc.of)
			if got != tc.want {
				t.Errorf("account is %q, want %q: %s", got, tc.want, tc.reason)
			}
			if diff := cmp.Diff(fmt.Sprintf("%T %s", tc.err, text(tc.err)), fmt.Sprintf("%T %s", err, text(err))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestErrNoAccountNamesLabel(t *testing.T) {
	if !strings.Contains(ErrNoAccount.Error(), api.LabelAccount) {
		t.Errorf("%q does not name %s", ErrNoAccount, api.LabelAccount)
	}
}

func TestNamespaceReturnsOwner(t *testing.T) {
	accounts := ResolveAccounts([]corev1.Namespace{namespace("a", "1234", 2), namespace("b", "1234", 1), namespace("c", "NO", 1)})
	for account, want := range map[string]string{"1234": "b", "NO": "", "5678": ""} {
		got, ok := accounts.Namespace(account)
		if got != want || ok != (want != "") {
			t.Errorf("namespace of %s is %q (%t), want %q", account, got, ok, want)
		}
	}
}

func cluster(name string, labels map[string]string, change func(*clusterv1.ManagedCluster)) clusterv1.ManagedCluster {
	c := clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{api.LabelClusters: "true"}},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
	}
	maps.Copy(c.Labels, labels)
	if change != nil {
		change(&c)
	}
	return c
}

func TestClusters(t *testing.T) {
	clusters := []clusterv1.ManagedCluster{
		cluster("eu-2", map[string]string{"region": "eu", "tier": "gold"}, nil),
		cluster("eu-1", map[string]string{"region": "eu"}, nil),
		cluster("us-1", map[string]string{"region": "us", "tier": "gold"}, nil),
		cluster("withheld", map[string]string{"region": "eu", api.LabelClusters: "false"}, nil),
		cluster("unlabelled", nil, func(c *clusterv1.ManagedCluster) { c.Labels = nil }),
		cluster("strange", map[string]string{"region": "eu"}, func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false }),
		cluster("leaving", map[string]string{"region": "eu"}, func(c *clusterv1.ManagedCluster) { c.DeletionTimestamp = new(at(1)) }),
		cluster("detaching", map[string]string{"region": "eu"}, func(c *clusterv1.ManagedCluster) { managedcluster.MarkDetaching(c, at(1).Time) }),
	}
	equal := func(key, value string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	tests := map[string]struct {
		reason     string
		annotation *string
		selector   metav1.LabelSelector
		want       []string
		err        string
	}{
		"nothing narrows the offer":                {reason: "all that are offered, accepted and stay", want: []string{"eu-1", "eu-2", "us-1"}},
		"an empty annotation narrows nothing":      {reason: "as an empty selector", annotation: new(""), want: []string{"eu-1", "eu-2", "us-1"}},
		"the annotation narrows":                   {reason: "the administrator's choice", annotation: new("region=eu"), want: []string{"eu-1", "eu-2"}},
		"the selector narrows":                     {reason: "the account's choice", selector: equal("tier", "gold"), want: []string{"eu-2", "us-1"}},
		"both narrow":                              {reason: "the account chooses among what it is allowed", annotation: new("region=eu"), selector: equal("tier", "gold"), want: []string{"eu-2"}},
		"the account cannot widen":                 {reason: "what is not allowed cannot be chosen", annotation: new("region=eu"), selector: equal("region", "us"), want: []string{}},
		"the account cannot choose what is kept":   {reason: "the offer is the administrator's", selector: equal(api.LabelClusters, "false"), want: []string{}},
		"the annotation has all kinds of terms":    {reason: "it is read as kubectl does", annotation: new("region in (us, ap), !nothing"), want: []string{"us-1"}},
		"an annotation that nobody can read":       {reason: "it is named, and nothing is placed", annotation: new("region=(eu"), err: "annotation workers.spokelet.io/clusters of namespace team: "},
		"a selector with an operator that is none": {reason: "the field is named", selector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}, err: "clusterSelector: "},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ns := namespace("team", "1234", 1)
			if tc.annotation != nil {
				ns.Annotations = map[string]string{api.AnnotationClusters: *tc.annotation}
			}
			got, err := Clusters(&ns, tc.selector, clusters)
			if !strings.HasPrefix(text(err), tc.err) || (err != nil) != (tc.err != "") {
				t.Fatalf("error is %v, want %q: %s", err, tc.err, tc.reason)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// seeds are enough orders of a handful of things.
const seeds = 50

func TestObjectOrderDoesNotChangeResult(t *testing.T) {
	namespaces := []corev1.Namespace{namespace("a", "1", 1), namespace("b", "1", 1), namespace("c", "2", 3), namespace("d", "2", 2), namespace("e", "BAD", 1)}
	clusters := []clusterv1.ManagedCluster{cluster("a", nil, nil), cluster("b", nil, nil), cluster("c", map[string]string{api.LabelClusters: ""}, nil)}
	claims := []HostRequest{
		{Account: "1", Created: at(1).Time, Host: "x.example", Allowed: "x.example"},
		{Account: "2", Created: at(1).Time, Host: "x.example", Allowed: "x.example"},
		{Account: "3", Created: at(0).Time, Host: "y.example", Allowed: "*.example"},
		{Account: "4", Created: at(2).Time, Host: "y.example", Allowed: "*.example", Current: "y.example"},
	}
	all := func() any {
		accounts := ResolveAccounts(namespaces)
		found := map[string]string{}
		for _, ns := range []string{"a", "b", "c", "d", "e"} {
			id, err := accounts.Account(ns)
			found[ns] = id + text(err)
		}
		placed, err := Clusters(&corev1.Namespace{}, metav1.LabelSelector{}, clusters)
		return []any{found, placed, text(err), told(AssignHosts(claims, ""))}
	}
	want := all()
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 0))
		r.Shuffle(len(namespaces), func(i, j int) { namespaces[i], namespaces[j] = namespaces[j], namespaces[i] })
		r.Shuffle(len(clusters), func(i, j int) { clusters[i], clusters[j] = clusters[j], clusters[i] })
		r.Shuffle(len(claims), func(i, j int) { claims[i], claims[j] = claims[j], claims[i] })
		if diff := cmp.Diff(want, all()); diff != "" {
			t.Fatalf("order %d gives another answer (-want +got):\n%s", seed, diff)
		}
	}
}

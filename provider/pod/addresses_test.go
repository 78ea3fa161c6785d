// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/provider/pod/address"
)

func serviceRange(cidr string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{cidr}}}
}

// realNode is a node of the hub itself.
func realNode(name, cidr, ip string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}, {Type: corev1.NodeHostName, Address: name}}},
	}
}

// at is a report of a pod that runs with those addresses, the pod's first.
func at(host string, pod ...string) wire.PodStatus {
	return runs(func(s *corev1.PodStatus) { setAddresses(s, pod, []string{host}) })
}

// addresses are those that the hub shows for a pod, its machine's last.
func (r *rig) addresses(name string) string {
	r.t.Helper()
	s := r.pod(name).Status
	pod, host := podAndHostAddresses(&s)
	return strings.Join(pod, " ") + " on " + strings.Join(host, " ")
}

func (r *rig) wantAddresses(want, when string) {
	r.t.Helper()
	if got := r.addresses("a"); got != want {
		r.t.Errorf("addresses %s: got %q, want %q", when, got, want)
	}
}

// drops are the messages of events about dropped addresses.
func (r *rig) drops() []string {
	r.t.Helper()
	var out []string
	for _, e := range r.events() {
		if e.Reason == ReasonPodAddressDropped {
			out = append(out, e.Message)
		}
	}
	return out
}

func TestStatusHidesAddressesOfTheHub(t *testing.T) {
	cases := map[string]struct {
		reason string
		said   wire.PodStatus
		want   string
		events int
	}{
		"the cluster's own": {reason: "nothing of the hub is there", said: at("192.0.2.7", "10.1.0.7", "fd01::7"), want: "10.1.0.7 10.1.0.7 fd01::7 on 192.0.2.7 192.0.2.7"},
		"a Service":         {reason: "endpoints and policies would lead there", said: at("192.0.2.7", "10.96.0.1"), want: " on 192.0.2.7 192.0.2.7", events: 1},
		"a pod of the hub":  {reason: "its traffic would be another's", said: at("192.0.2.7", "10.244.1.5"), want: " on 192.0.2.7 192.0.2.7", events: 1},
		"an API server":     {reason: "pods/proxy would lead there", said: at("198.51.100.6", "198.51.100.6"), want: " on ", events: 1},
		"the hub's pod":     {reason: "its endpoints are there", said: at("192.0.2.7", "10.244.9.9"), want: " on 192.0.2.7 192.0.2.7", events: 1},
		"a node as machine": {reason: "a kubelet of the hub listens there", said: at("192.0.2.2", "10.1.0.7"), want: "10.1.0.7 10.1.0.7 on ", events: 1},
		"one of two":        {reason: "the other stays, and is the main one", said: at("192.0.2.7", "::1", "10.1.0.7"), want: "10.1.0.7 10.1.0.7 on 192.0.2.7 192.0.2.7", events: 1},
		"more than Kubernetes takes": {
			reason: "the API server would refuse the whole status", said: at("192.0.2.7", "10.1.0.7", "10.1.0.8", "fd01::7", "fd01::8"),
			want: "10.1.0.7 10.1.0.7 fd01::7 on 192.0.2.7 192.0.2.7",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{Address: netip.MustParseAddr("10.244.9.9")}, func(r *rig) {
				r.watch(spoke)
				defer r.connect(spoke)()
				for range 3 {
					r.says(spoke, podNamed("a"), tc.said)
				}
				r.wantAddresses(tc.want, tc.reason)
				if got := briefly(r.pod("a").Status); got.Ready != "True" || got.Phase != corev1.PodRunning {
					t.Errorf("the rest of the status is %+v", got)
				}
				if got := r.drops(); len(got) != tc.events {
					t.Errorf("events: %q, want %d", got, tc.events)
				}
			}, podNamed("a"), serviceRange("10.96.0.0/12"), realNode("n", "10.244.1.0/24", "192.0.2.2"), &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"198.51.100.6"}}},
			})
		})
	}
}

func TestAddressesAreRecheckedWhenTheHubNetworkChanges(t *testing.T) {
	shown, gone := "10.1.0.7 10.1.0.7 on 192.0.2.7 192.0.2.7", " on 192.0.2.7 192.0.2.7"
	for name, connected := range map[string]bool{"while the cluster is connected": true, "while it is cut off": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(r *rig) {
				r.watch(spoke)
				cut := r.connect(spoke)
				r.says(spoke, podNamed("a"), at("192.0.2.7", "10.1.0.7"))
				r.wantAddresses(shown, "at first")
				if !connected {
					cut()
				} else {
					defer cut()
				}
				node := realNode("new", "10.1.0.0/24", "192.0.2.3")
				if _, err := r.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				r.wantAddresses(gone, "when a node has that range")
				if got := r.drops(); len(got) != 1 || !strings.Contains(got[0], "10.1.0.7 is in a pod range of the hub") {
					t.Errorf("events: %q", got)
				}
				if !connected {
					return
				}
				if err := r.client.CoreV1().Nodes().Delete(t.Context(), "new", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				r.wantAddresses(shown, "when the node is gone")
				if _, err := r.client.NetworkingV1().ServiceCIDRs().Create(t.Context(), serviceRange("10.1.0.0/16"), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				r.wantAddresses(gone, "when Services have that range")
			}, podNamed("a"))
		})
	}
}

func TestAddressesAreRecheckedWhenTheClusterRecordChanges(t *testing.T) {
	shown, gone := "10.1.0.7 10.1.0.7 on 192.0.2.7 192.0.2.7", " on "
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		defer r.connect(spoke)()
		r.says(spoke, podNamed("a"), at("192.0.2.7", "10.1.0.7"))
		for _, step := range []struct{ text, want string }{
			{text: "none", want: gone},
			{text: "10.1.0.0/16", want: "10.1.0.7 10.1.0.7 on "},
			{text: "10.1.0.0/16,192.0.2.0/24", want: shown},
			{text: "fd00::/8", want: gone},
		} {
			r.SetConsent(spoke, Consent{Addresses: limitOf(r.t, step.text)})
			synctest.Wait()
			r.wantAddresses(step.want, "with "+step.text)
		}
		r.requests()
		r.SetConsent(spoke, Consent{Addresses: limitOf(r.t, "fd00::/8")})
		synctest.Wait()
		if diff := cmp.Diff(map[string]int{}, r.requests()); diff != "" {
			t.Errorf("requests when the record says the same (-want +got):\n%s", diff)
		}
	}, podNamed("a"))
}

func TestStatusShowsNoNewAddressBeforeTheHubNetworkIsKnown(t *testing.T) {
	shown := "10.1.0.7 10.1.0.7 on 192.0.2.7 192.0.2.7"
	inBubble(t, Config{}, func(r *rig) {
		r.network = address.NewNetwork(netip.Addr{}, r.recheckAddresses)
		r.watch(spoke)
		defer r.connect(spoke)()
		r.says(spoke, podNamed("a"), at("192.0.2.7", "10.1.0.7"))
		r.says(spoke, podNamed("b", inCluster), at("192.0.2.7", "10.1.0.7"))
		for _, source := range []address.Source{address.Services, address.Nodes, address.APIServers} {
			r.wantAddresses(" on ", "before they are known")
			if got := r.addresses("b"); got != shown {
				t.Errorf("a pod that had its addresses shows %q", got)
			}
			if got := r.pod("a").Status.Phase; got != corev1.PodRunning {
				t.Errorf("phase %s", got)
			}
			if got := r.drops(); len(got) > 0 {
				t.Errorf("events: %q", got)
			}
			r.network.Replace(source, nil)
			synctest.Wait()
		}
		r.wantAddresses(shown, "when they are known")
	}, podNamed("a"), podNamed("b", inCluster))
}

func TestStatusShowsNoNewAddressWithoutServiceCIDRs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset(podNamed("a"))
		client.PrependReactor("list", "servicecidrs", func(k8stesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "servicecidrs"}, "")
		})
		r := newRig(t, Config{}, client)
		defer func() { r.stop() }()
		r.watch(spoke)
		defer r.connect(spoke)()
		r.says(spoke, podNamed("a"), at("192.0.2.7", "10.1.0.7"))
		r.wantAddresses(" on ", "of a hub before Kubernetes 1.33")
	})
}

func TestStatusShowsNoNewAddressBeforeTheClusterRecordIsKnown(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.consents.remove(spoke)
		r.watch(spoke)
		defer r.connect(spoke)()
		r.says(spoke, podNamed("a"), at("192.0.2.7", "10.1.0.7"))
		r.wantAddresses(" on ", "before the record is known")
		r.SetConsent(spoke, Consent{})
		synctest.Wait()
		r.wantAddresses("10.1.0.7 10.1.0.7 on 192.0.2.7 192.0.2.7", "when it is")
	}, podNamed("a"))
}

func TestAddressesWrittenByAnEarlierProcessAreChecked(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		synctest.Wait()
		r.wantAddresses(" on 192.0.2.7 192.0.2.7", "of a pod whose cluster is away")
	}, podNamed("a", inCluster), serviceRange("10.1.0.0/16"))
}

func TestHiddenAddressEventsAreBounded(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		defer r.connect(spoke)()
		addr := netip.MustParseAddr("127.0.0.1")
		for range 3 * eventBurst {
			r.says(spoke, podNamed("a"), at("192.0.2.7", addr.String()))
			addr = addr.Next()
			<-time.After(time.Second)
		}
		if got := len(r.drops()); got < 2 || got > eventBurst+1 {
			t.Errorf("%d events", got)
		}
	}, podNamed("a"))
}

func TestPodCarriesSplitLabelOfClusterRecord(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.SetConsent(spoke, Consent{SplitLabel: "example.com/pool"})
		r.watch(spoke)
		sent, ok := r.loadPod(spoke, "default/a")
		if !ok {
			t.Fatal("the pod is not loaded")
		}
		if got, err := wire.DecodePod(sent.Key, sent.Body); err != nil || got.SplitLabel != "example.com/pool" {
			t.Errorf("label %q, %v", got.SplitLabel, err)
		}
	}, podNamed("a"))
}

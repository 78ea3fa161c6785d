// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/pod/translate"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/podrefs"
)

// vault is what a pod asks for beside the token of the API server.
var vault = corev1.ServiceAccountTokenProjection{Path: "vault", Audience: "vault", ExpirationSeconds: new(int64(600))}

// askingTwice has a pod ask for that, too.
func askingTwice(p *wire.Pod) {
	asking(p)
	sources := &p.Pod.Spec.Volumes[0].Projected.Sources
	*sources = append(*sources, corev1.VolumeProjection{ServiceAccountToken: &vault})
}

// oneSecret is a copyStore with one copy.
type oneSecret struct{ there *objectCopy }

func (s *oneSecret) get(context.Context, namespacedName) (*objectCopy, error) { return s.there, nil }

func (s *oneSecret) create(_ context.Context, _ namespacedName, r *objectCopy) error {
	s.there = r
	return nil
}

func (s *oneSecret) update(ctx context.Context, at namespacedName, r *objectCopy) error {
	return s.create(ctx, at, r)
}

func (*oneSecret) delete(context.Context, namespacedName, *objectCopy) error { return nil }

func TestUnsentTokenIsKeptWhileItsPodReadsIt(t *testing.T) {
	const uid = "hub-1"
	api, second := podrefs.TokenOf(&corev1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(3607))}).Name, podrefs.TokenOf(&vault).Name
	key := wire.PodObjectKey{Kind: kindToken, Namespace: "shop", Name: uid}
	cases := map[string]struct {
		reason string
		told   bool
		// live is the UID of the pod that runs, "" for none, and change is of it.
		live   types.UID
		change func(*corev1.Pod)
		there  map[string][]byte
		want   map[string][]byte
	}{
		"its pod runs": {
			reason: "no volume can be made without it", told: true, live: uid,
			there: map[string][]byte{api: []byte("1"), second: []byte("1")},
			want:  map[string][]byte{api: []byte("2"), second: []byte("1")},
		},
		"the hub has not told of its pod yet": {
			reason: "an agent that starts hears of tokens when it does", live: uid,
			there: map[string][]byte{api: []byte("1"), second: []byte("1")},
			want:  map[string][]byte{api: []byte("2"), second: []byte("1")},
		},
		"its pod reads it no more": {
			reason: "a token that nobody reads is nobody's", told: true, live: uid,
			change: func(p *corev1.Pod) { p.Spec.Volumes = p.Spec.Volumes[1:] },
			there:  map[string][]byte{api: []byte("1"), second: []byte("1")},
			want:   map[string][]byte{api: []byte("2")},
		},
		"it never was ours": {
			reason: "what others add goes, whoever reads it", told: true, live: uid,
			change: func(p *corev1.Pod) {
				from := p.Spec.Volumes[0].Projected.Sources[0].Secret
				from.Items = append(from.Items, corev1.KeyToPath{Key: "mine", Path: "mine"}, corev1.KeyToPath{Key: "token-mine", Path: "m"})
			},
			there: map[string][]byte{api: []byte("1"), "mine": []byte("m"), "token-mine": []byte("m"), "token-0123456789abcdef": []byte("m")},
			want:  map[string][]byte{api: []byte("2")},
		},
		"its pod does not run": {
			reason: "one that is made has all of its tokens from the hub", told: true,
			there: map[string][]byte{api: []byte("1"), second: []byte("1")},
			want:  map[string][]byte{api: []byte("2")},
		},
		"another pod of the name runs": {
			reason: "its tokens are others", told: true, live: "hub-2",
			there: map[string][]byte{api: []byte("1"), second: []byte("1")},
			want:  map[string][]byte{api: []byte("2")},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := idle(t)
			e.cfg.Tokens = translate.TokensHub
			if tc.told {
				tellChanged(t, e, uid, askingTwice)
			}
			if tc.live != "" {
				e.observePod(reader(t, tc.live, tc.change))
			}
			store := &oneSecret{there: e.newCopy(key, &wire.PodObject{Type: corev1.SecretTypeOpaque, Data: tc.there})}
			sent := map[string][]byte{api: []byte("2")}
			want := &wire.PodObject{Type: corev1.SecretTypeOpaque, Data: sent}
			if err := e.replaceCopy(t.Context(), store, e.copyNamespacedName(key), key, e.newCopy(key, want)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, store.there.object.Data); diff != "" {
				t.Errorf("%s: the Secret (-want +got):\n%s", tc.reason, diff)
			}
			if len(sent) != 1 {
				t.Errorf("what the hub sent was changed: %d tokens", len(sent))
			}
		})
	}
}

// reader is what runs for a pod that asks for two tokens, each in a volume of its own.
func reader(t *testing.T, uid types.UID, change func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	hub := wire.Pod{Pod: corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: uid},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "web"}}},
	}}
	asking(&hub)
	hub.Pod.Spec.Volumes = append([]corev1.Volume{{Name: "vault", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &vault}},
	}}}}, hub.Pod.Spec.Volumes...)
	pod, err := translate.NewPod(&hub.Pod, translate.Options{HubID: "hub", Namespace: "shop", Tokens: translate.TokensHub, Issued: true})
	if err != nil {
		t.Fatal(err)
	}
	pod.UID, pod.ResourceVersion = "spoke-1", "5"
	if change != nil {
		change(pod)
	}
	return pod
}

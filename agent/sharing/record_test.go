// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/spokelet/spokelet/agent/sharing/merge"
	"github.com/spokelet/spokelet/internal/secretstore"
	"github.com/spokelet/spokelet/internal/sharedobject"
	"github.com/spokelet/spokelet/internal/testing/resourcetest"
	"github.com/spokelet/spokelet/internal/testing/testscale"
	"github.com/spokelet/spokelet/tunnel/resource"
)

func FuzzRecord(f *testing.F) {
	for _, seed := range []string{
		`{"hubUID":"h","spokeUID":"s","hubNumber":7,"spokeVersion":"8","base":{"hub":{"spec":{"a":"1"}}}}`,
		`{"base":{"hub":{"spec":1},"spoke":{}},"doubt":{"hub":{}},"pending":{"side":"Hub","wrote":"x","part":"Object","to":{},"next":{"hub":{}}}}`,
		`{"pending":{"side":"Spoke","part":"Deletion","conflicts":["deletion"]}}`, `{}`, `null`, `[]`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := decodeRecord(raw)
		if err != nil {
			return
		}
		again, err := r.encode()
		if err != nil {
			t.Fatal(err)
		}
		same, err := decodeRecord(again)
		if err != nil {
			t.Fatalf("%s cannot be read again: %v", again, err)
		}
		if diff := cmp.Diff(r, same, cmp.AllowUnexported(record{})); diff != "" {
			t.Errorf("it is another when it is read again:\n%s", diff)
		}
		for _, sight := range []sideState{{}, at("h", a1), at("s", `{}`)} {
			_, _ = mergeInput{policy: bothHub, record: r, hub: sight, spoke: at("s", a2)}.decide()
		}
		if s, err := r.Base.decode(); err == nil && s.Hub != nil {
			if _, err := encodeStates(s); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestEncodedStatesRoundTrip(t *testing.T) {
	one, two := map[string]any(spec("a", "1")), map[string]any(spec("a", "2"))
	for name, want := range map[string]merge.States{
		"the same":  {Hub: one, Spoke: one},
		"different": {Hub: one, Spoke: two},
		"empty":     {Hub: map[string]any{}, Spoke: map[string]any{}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := encodeStates(want)
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.decode()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmp.Transformer("content", func(c sharedobject.Content) map[string]any { return c })); diff != "" {
				t.Errorf("states (-want +got):\n%s", diff)
			}
		})
	}
}

// startWithSecretStore is an engine whose records are in Secrets.
func (r *rig) startWithSecretStore(secrets *fake.Clientset) (stop func()) {
	r.t.Helper()
	store, err := secretstore.Open(r.t.Context(), secretstore.Config{Name: StoreName, Secrets: secrets.CoreV1().Secrets("agent"), Logger: logr.Discard()})
	if err != nil {
		r.t.Fatal(err)
	}
	client := &fakeClient{store: r.spoke, network: r.network}
	engine, err := New(Config{Objects: client, Definitions: client, Records: store, Events: r.events, KubeSystemUID: "spoke-1", Quota: muchRoom()})
	if err != nil {
		r.t.Fatal(err)
	}
	agent, err := resource.NewAgent(engine.Sources(), engine.Mirrors())
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan struct{}, 2)
	go func() { _ = store.Run(ctx); ended <- struct{}{} }()
	go func() { _ = engine.Run(ctx); ended <- struct{}{} }()
	cut := resourcetest.Connect(r.t, r.up.sync, cluster, agent)
	return func() {
		cut()
		cancel()
		<-ended
		<-ended
		r.before = append(r.before, client.wrote()...)
	}
}

// withVersions gives the Secrets of a fake resourceVersions, as an API server does.
func withVersions(secrets *fake.Clientset) {
	version := 0
	secrets.PrependReactor("*", "secrets", func(a clienttesting.Action) (bool, apiruntime.Object, error) {
		// An update is a create action, too.
		if a, ok := a.(clienttesting.CreateAction); ok {
			version++
			if secret, ok := a.GetObject().(*corev1.Secret); ok {
				secret.ResourceVersion = strconv.Itoa(version)
			}
		}
		return false, nil, nil
	})
}

func TestRecordsSurviveRestartInSecretStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{share: defaultShare()})
		secrets := fake.NewSimpleClientset()
		withVersions(secrets)
		r.createObject(r.hub, "o", spec("a", "1", "b", "1"))
		stop := r.startWithSecretStore(secrets)
		settle()
		stop()
		r.hub.edit("o", set("a", "2"))
		r.spoke.edit("o", set("b", "2"))
		stop = r.startWithSecretStore(secrets)
		settle()
		stop()
		r.wantSame("o", spec("a", "2", "b", "2"))
		if d := r.up.lastState().Decided; len(d) > 0 {
			t.Errorf("conflicts %+v, want none: it is known what both sides had", d)
		}
	})
}

func TestManyObjectsTakeLittleMemory(t *testing.T) {
	objects := testscale.Of(2_000, 10_000)
	most := int64(objects) * 6 << 10
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{share: defaultShare()})
		for i := range objects {
			r.createObject(r.hub, fmt.Sprintf("o%05d", i), sharedobject.Content{
				"metadata": map[string]any{"labels": map[string]any{"app": fmt.Sprintf("app-%d", i)}},
				"spec":     map[string]any{"a": fmt.Sprintf("%0400d", i), "b": fmt.Sprintf("%0400d", -i)},
			})
		}
		// What the fakes keep of that is counted before.
		for _, name := range r.hub.names() {
			c := r.hub.content(name)
			r.createObject(r.spoke, name, c)
		}
		r.hub.dropHistory()
		r.spoke.dropHistory()
		before := heap()
		r.start()
		r.connect()
		settle()
		if n := r.up.lastState().Objects; n != objects {
			t.Fatalf("%d objects are shared, want %d: %+v", n, objects, r.up.lastState())
		}
		after := heap()
		t.Logf("%d bytes for each object, with its record and what the fake hub publishes", (after-before)/int64(objects))
		if after-before > most {
			t.Errorf("%d objects take %d MiB, want at most %d", objects, (after-before)>>20, most>>20)
		}
		if n := len(r.written()) + len(r.listHubWrites()); n > 0 {
			t.Errorf("%d writes were made of what is the same", n)
		}
	})
}

// dropHistory has a store keep no changes of the past.
func (s *fakeStore) dropHistory() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes, s.compacted = nil, s.version
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestInSyncContentIsStoredOnlyInRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSharing(t, options{share: defaultShare()})
		held := func() (raws int) {
			s := r.process.engine.getShare(shareName)
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, o := range s.objects {
				for _, side := range []sideState{o.hub, o.spoke} {
					if side.raw != nil {
						raws++
					}
				}
			}
			return raws
		}
		r.createObject(r.hub, "o", spec("a", "1"))
		settle()
		if n := held(); n != 0 {
			t.Errorf("%d contents are kept beside the record of what was created", n)
		}
		r.crash()
		r.start()
		r.connect()
		settle()
		if n := held(); n != 0 {
			t.Errorf("%d contents are kept beside the record of what was there", n)
		}
		r.spoke.edit("o", set("b", "2"))
		settle()
		r.wantSame("o", spec("a", "1", "b", "2"))
		r.hub.delete("o")
		settle()
		r.wantCounts(0, 0)
	})
}

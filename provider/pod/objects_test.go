// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/spokelet/spokelet/api/wire"
)

// withObjects has a pod refer to a ConfigMap and a Secret.
func withObjects(p *corev1.Pod) {
	p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}},
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}}},
	}
}

func onNode(name string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = name } }

func settings() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings", UID: "s1"},
		Data:       map[string]string{"mode": "dark"}, BinaryData: map[string][]byte{"logo": {0xff}}, Immutable: new(true),
	}
}

func keys() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "keys", UID: "k1"},
		Type:       corev1.SecretTypeOpaque, Data: map[string][]byte{"key": []byte("hidden")},
	}
}

// object returns what a cluster is sent under a key, nil when nothing.
func (r *rig) object(cluster, key string) *wire.PodObject {
	r.t.Helper()
	_, published := r.hub.Source(cluster, wire.KindPodObject).Ref(key)
	sent, ok := r.objects.Load(cluster, key)
	if ok != published {
		r.t.Fatalf("%s: published %t, loaded %t", key, published, ok)
	}
	if !ok {
		return nil
	}
	o, err := wire.DecodePodObject(sent.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return &o
}

func TestReferencedObjectsArePublished(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		wantSettings := &wire.PodObject{Text: map[string]string{"mode": "dark"}, Data: map[string][]byte{"logo": {0xff}}, Immutable: true}
		if diff := cmp.Diff(wantSettings, r.object(spoke, "configmap/default/settings")); diff != "" {
			t.Errorf("ConfigMap (-want +got):\n%s", diff)
		}
		missing := &wire.PodObject{Missing: true}
		if diff := cmp.Diff(missing, r.object(spoke, "secret/default/keys")); diff != "" {
			t.Errorf("Secret that is not there (-want +got):\n%s", diff)
		}
		secrets := r.client.CoreV1().Secrets("default")
		if _, err := secrets.Create(t.Context(), keys(), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		wantKeys := &wire.PodObject{Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"key": []byte("hidden")}}
		if diff := cmp.Diff(wantKeys, r.object(spoke, "secret/default/keys")); diff != "" {
			t.Errorf("Secret (-want +got):\n%s", diff)
		}
		if err := secrets.Delete(t.Context(), "keys", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if diff := cmp.Diff(missing, r.object(spoke, "secret/default/keys")); diff != "" {
			t.Errorf("Secret that was deleted (-want +got):\n%s", diff)
		}
	}, podNamed("a", withObjects), settings())
}

func TestObjectIsPublishedToReferencingClustersOnly(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch("spoke3")
		stop := r.watch(spoke)
		r.watch("spoke2")
		for _, cluster := range []string{spoke, "spoke2"} {
			if o := r.object(cluster, "secret/default/keys"); o == nil || o.Missing {
				t.Errorf("%s has %+v", cluster, o)
			}
		}
		if o := r.object("spoke3", "secret/default/keys"); o != nil {
			t.Error("a cluster without such a pod has it")
		}
		if n := r.objects.Count(); n != 2 {
			t.Errorf("%d objects are watched, want two that are shared", n)
		}
		stop()
		r.RemoveCluster(spoke)
		r.vanish("b")
		if o := r.object("spoke2", "secret/default/keys"); o == nil {
			t.Error("it was withdrawn while a pod refers to it")
		}
		r.vanish("c")
		if o := r.object("spoke2", "secret/default/keys"); o != nil || r.objects.Count() != 0 {
			t.Errorf("the last pod is gone: %+v is sent, %d objects are watched", o, r.objects.Count())
		}
	}, podNamed("a", withObjects), podNamed("b", withObjects, onNode("spoke2")), podNamed("c", withObjects, onNode("spoke2")), settings(), keys())
}

func (r *rig) vanish(name string) {
	r.t.Helper()
	if err := r.client.CoreV1().Pods("default").Delete(r.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

func TestObjectIsUnpublishedWhenThePodDropsItsReference(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		pod := podNamed("a", withObjects)
		pod.Spec.Containers[0].EnvFrom = pod.Spec.Containers[0].EnvFrom[:1]
		r.update(pod)
		if diff := cmp.Diff([]string{"configmap/default/settings"}, r.published(spoke, wire.KindPodObject)); diff != "" {
			t.Errorf("what is sent (-want +got):\n%s", diff)
		}
	}, podNamed("a", withObjects), settings(), keys())
}

func TestUnreferencedObjectIsForgotten(t *testing.T) {
	objects := []runtime.Object{podNamed("a", withObjects), settings(), keys()}
	for i := range 2000 {
		other := keys()
		other.Name = fmt.Sprintf("other%d", i)
		objects = append(objects, other)
	}
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		watches := 0
		for _, a := range r.client.Actions() {
			if a.Matches("list", "secrets") || a.Matches("list", "configmaps") {
				watches++
			}
		}
		if n := r.objects.Count(); n != 2 || watches != 2 {
			t.Errorf("%d objects are held and %d watched, want two", n, watches)
		}
	}, objects...)
}

func TestObjectsOfRejectedPodAreNotRead(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		if n := r.objects.Count(); n != 0 {
			t.Errorf("%d objects are watched", n)
		}
	}, podNamed("a", withObjects, ofADaemonSet))
}

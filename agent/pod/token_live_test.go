// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/pod/translate"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/podrefs"
)

func hubTokens(c *Config) { c.Tokens = translate.TokensHub }

// asking has a pod ask for a token, as the hub's admission does, and the hub issue it.
func asking(p *wire.Pod) {
	p.Issued = true
	p.Pod.Spec.ServiceAccountName = "builder"
	p.Pod.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access-1", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(3607))}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: podrefs.RootCA}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		},
	}}}}
	p.Pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "kube-api-access-1", MountPath: podrefs.TokenPath}}
}

// issue publishes the token of a pod.
func (h *hub) issue(p wire.Pod, token string) {
	h.t.Helper()
	h.issueAll(p, map[string]string{podrefs.Tokens(&p.Pod.Spec)[0].Name: token})
}

// issueAll publishes some tokens of a pod.
func (h *hub) issueAll(p wire.Pod, tokens map[string]string) {
	h.t.Helper()
	key := wire.PodTokenKey{PodKey: wire.PodKey{Namespace: p.Pod.Namespace, Name: p.Pod.Name}, UID: string(p.Pod.UID)}
	h.put(wire.KindPodToken, key.String(), key.UID, wire.PodToken{Tokens: tokens})
}

// secret of the spoke, nil when there is none.
func (c *cluster) secret(name string) *corev1.Secret {
	c.t.Helper()
	found, err := c.kube.CoreV1().Secrets(c.namespace).Get(c.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return found
}

// token is what the Secret of a pod holds of it.
func (c *cluster) token(p wire.Pod) string {
	c.t.Helper()
	found := c.secret(translate.TokenSecret(p.Pod.UID))
	if found == nil {
		return ""
	}
	return string(found.Data[podrefs.Tokens(&p.Pod.Spec)[0].Name])
}

func TestPodReadsHubTokens(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	a := h.start(hubTokens)
	web := h.pod("web", asking)
	h.object(h.configMap(podrefs.RootCA), wire.PodObject{Text: map[string]string{"ca.crt": "the hub's"}})
	h.want(web)
	h.want(h.pod("plain"))
	c.appears("plain", "uid-plain")
	if c.pod("web") != nil {
		t.Error("the pod is there before its token")
	}
	h.issue(web, "first")
	live := c.appears("web", "uid-web")
	if live.Spec.ServiceAccountName != defaultAccount || *live.Spec.AutomountServiceAccountToken || len(podrefs.Tokens(&live.Spec)) != 0 || len(live.Spec.Volumes) != 1 {
		t.Errorf("the pod has tokens of this cluster: %+v", live.Spec)
	}
	found := c.secret(translate.TokenSecret("uid-web"))
	want := map[string][]byte{podrefs.Tokens(&web.Pod.Spec)[0].Name: []byte("first"), "namespace": []byte(c.namespace)}
	if diff := cmp.Diff(want, found.Data); diff != "" || found.Labels[translate.LabelHub] != c.namespace {
		t.Errorf("secret of hub %q (-want +got):\n%s", found.Labels[translate.LabelHub], diff)
	}
	if got := c.dataOf(translate.HubRootCA)["ca.crt"]; got != "the hub's" {
		t.Errorf("authority is %q", got)
	}

	h.issue(web, "second")
	c.eventually("the token is replaced", func() bool { return c.token(web) == "second" })
	a.stop()
	h.issue(web, "third")
	b := h.start(hubTokens)
	c.eventually("the token is replaced by a process that comes after", func() bool { return c.token(web) == "third" })
	// Tokens do not wait for the list of pods. A pod that goes before it was ever in that list
	// would be made again: this hub has not heard of it.
	c.eventually("the process knows the pod", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		en := b.pods[b.spokeName(h.key("web"))]
		return en != nil && en.live != nil
	})

	c.end("web")
	h.is("web", "is lost", func(s told) bool { return s.Gone && s.Lost })
	if c.token(web) != "" || c.dataOf(translate.HubRootCA) != nil {
		t.Error("what it used is left behind")
	}
	h.removePod("web")
	h.sync.Source(spokeName, wire.KindPodToken).Delete(h.key("web").String() + "/uid-web")
	c.eventually("nothing is known of its token", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		_, known := b.objects[wire.PodObjectKey{Kind: kindToken, Namespace: c.namespace, Name: "uid-web"}]
		return !known
	})
}

func TestUnrenewedTokenStaysInTheSecret(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	a := h.start(hubTokens)
	web := h.pod("web", askingTwice)
	h.object(h.configMap(podrefs.RootCA), wire.PodObject{Missing: true})
	both := podrefs.Tokens(&web.Pod.Spec)
	h.issueAll(web, map[string]string{both[0].Name: "first", both[1].Name: "kept"})
	h.want(web)
	c.appears("web", "uid-web")
	has := func(token string) func() bool {
		return func() bool { return c.token(web) == token }
	}
	check := func(when string) {
		t.Helper()
		want := map[string][]byte{both[0].Name: c.secret(translate.TokenSecret("uid-web")).Data[both[0].Name], both[1].Name: []byte("kept"), "namespace": []byte(c.namespace)}
		if diff := cmp.Diff(want, c.secret(translate.TokenSecret("uid-web")).Data); diff != "" {
			t.Errorf("%s: secret (-want +got):\n%s", when, diff)
		}
	}
	// A hub that has just started has nothing, and then what it gets.
	h.sync.Source(spokeName, wire.KindPodToken).Delete(h.key("web").String() + "/uid-web")
	h.issueAll(web, map[string]string{both[0].Name: "second"})
	c.eventually("the other token is replaced", has("second"))
	check("the hub has one of two")
	a.stop()
	h.issueAll(web, map[string]string{both[0].Name: "third"})
	h.start(hubTokens)
	c.eventually("the other token is replaced by a process that comes after", has("third"))
	check("the agent comes after")
	h.issueAll(web, map[string]string{both[0].Name: "third", both[1].Name: "healed"})
	c.eventually("both are there", func() bool {
		return string(c.secret(translate.TokenSecret("uid-web")).Data[both[1].Name]) == "healed"
	})
}

func TestPodWithoutIssuedTokensIsRefusedUntilTheyAre(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	h.start(hubTokens)
	web := h.pod("web", asking, func(p *wire.Pod) { p.Issued = false })
	h.want(web)
	h.refused("web", translate.ReasonTokenNotIssued)
	web.Issued = true
	h.object(h.configMap(podrefs.RootCA), wire.PodObject{Missing: true})
	h.issue(web, "first")
	h.want(web)
	c.appears("web", "uid-web")
}

func TestTokenSecretsAreOnlyInAllowedNamespaces(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.makeNamespace(nil)
	h := newHub(c)
	h.complete()
	h.start(hubTokens)
	web := h.pod("web", asking)
	h.object(h.configMap(podrefs.RootCA), wire.PodObject{Missing: true})
	h.issue(web, "first")
	h.want(web)
	h.refused("web", ReasonNamespaceNotAllowed)
	if c.token(web) != "" {
		t.Error("its owner did not let pods in, and has a token of the hub")
	}
}

func TestPodsCannotReadTokensOfOthers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	a := h.start(hubTokens)
	web := h.pod("web", asking)
	h.object(h.configMap(podrefs.RootCA), wire.PodObject{Missing: true})
	h.issue(web, "first")
	h.want(web)
	c.appears("web", "uid-web")
	secret := translate.TokenSecret(web.Pod.UID)
	h.want(h.pod("thief", func(p *wire.Pod) {
		p.Pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Optional: new(true),
		}}}
	}))
	h.refused("thief", translate.ReasonNameReserved)
	h.removePod("thief")
	c.eventually("nothing is left of it", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		o := a.objects[wire.PodObjectKey{Kind: wire.PodObjectSecret, Namespace: c.namespace, Name: secret}]
		return len(o.users) == 0 && !o.mayExist
	})
	if c.token(web) != "first" {
		t.Error("its end has taken the token with it")
	}
}

func TestForgedAdmissionVolumeIsOmitted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.makeNamespace(map[string]string{LabelPods: PodsAllowed})
	h := newHub(c)
	h.complete()
	h.start(hubTokens)
	// Of the owner, and of another pod.
	for i, name := range []string{"database", translate.TokenSecret("uid-other")} {
		pod := fmt.Sprint("thief-", i)
		h.want(h.pod(pod, asking, func(p *wire.Pod) {
			p.Issued = false
			p.Pod.Spec.Volumes[0].Projected.Sources = []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: name},
			}}}
		}))
		live := c.appears(pod, types.UID("uid-"+pod))
		if n := len(live.Spec.Volumes) + len(live.Spec.Containers[0].VolumeMounts); n != 0 {
			t.Errorf("the pod reads %s: %+v", name, live.Spec.Volumes)
		}
	}
}

func TestEphemeralContainerReadsHubRootCA(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	h.start(hubTokens)
	web := h.pod("web", asking)
	h.object(h.configMap(podrefs.RootCA), wire.PodObject{Text: map[string]string{"ca.crt": "the hub's"}})
	h.issue(web, "first")
	h.want(web)
	c.appears("web", "uid-web")
	reader := h.pod("web", asking, func(p *wire.Pod) {
		p.Pod.Generation = 2
		p.Pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debugger", Image: "spokelet.io/test/busybox:latest",
			EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: podrefs.RootCA}}}},
		}}}
	})
	h.want(reader)
	c.eventually("the container is there", func() bool { return len(c.pod("web").Spec.EphemeralContainers) == 1 })
	if got := c.pod("web").Spec.EphemeralContainers[0].EnvFrom[0].ConfigMapRef.Name; got != translate.HubRootCA {
		t.Errorf("it reads %s", got)
	}
}

func TestForeignSecretIsNotOverwrittenByTokens(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.makeNamespace(map[string]string{LabelPods: PodsAllowed})
	h := newHub(c)
	h.complete()
	h.start(hubTokens)
	web := h.pod("web", asking)
	theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: translate.TokenSecret(web.Pod.UID)}, Data: map[string][]byte{"mine": []byte("mine")}}
	if _, err := c.kube.CoreV1().Secrets(c.namespace).Create(t.Context(), theirs, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	h.object(h.configMap(podrefs.RootCA), wire.PodObject{Missing: true})
	h.issue(web, "first")
	h.want(web)
	h.refused("web", ReasonNameTaken)
	if found := c.secret(theirs.Name); string(found.Data["mine"]) != "mine" || len(found.Data) != 1 {
		t.Errorf("their secret: %v", found.Data)
	}
	if err := c.kube.CoreV1().Secrets(c.namespace).Delete(t.Context(), theirs.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.appears("web", types.UID("uid-web"))
}

func TestRemoveDeletesTokenSecrets(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	a := h.start(hubTokens)
	web := h.pod("web", asking)
	h.object(h.configMap(podrefs.RootCA), wire.PodObject{Text: map[string]string{"ca.crt": "the hub's"}})
	h.issue(web, "first")
	h.want(web)
	c.appears("web", "uid-web")
	a.stop()
	if err := Remove(t.Context(), c.cfg, logr.Discard(), "", c.namespace); err != nil {
		t.Fatal(err)
	}
	if c.token(web) != "" || c.dataOf(translate.HubRootCA) != nil {
		t.Error("what it used is left behind")
	}
}

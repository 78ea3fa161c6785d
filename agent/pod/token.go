// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/pod/translate"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/podrefs"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// kindToken is the kind of an object that holds the tokens of one pod. Its name is
// the UID of the hub's pod, and no key of the hub's objects has that kind.
const kindToken = "token"

func tokenObjectKey(key wire.PodTokenKey) wire.PodObjectKey {
	return wire.PodObjectKey{Kind: kindToken, Namespace: key.Namespace, Name: key.UID}
}

// handleToken takes the tokens of one pod.
func (e *Engine) handleToken(r resource.Resource) {
	key, err := wire.ParsePodTokenKey(r.Key)
	if err == nil {
		var body wire.PodToken
		if body, err = wire.DecodePodToken(r.Body); err == nil {
			e.setDesiredObject(tokenObjectKey(key), tokenSecret(key, body))
			return
		}
	}
	e.log.Error(err, "hub sent tokens of a pod that cannot be read", "pod", r.Key)
}

// tokenSecret is what a pod's Secret holds.
func tokenSecret(key wire.PodTokenKey, body wire.PodToken) *wire.PodObject {
	data := map[string][]byte{translate.NamespaceKey: []byte(key.Namespace)}
	for name, token := range body.Tokens {
		data[name] = []byte(token)
	}
	return &wire.PodObject{Type: corev1.SecretTypeOpaque, Data: data}
}

// handleTokenDeleted: the hub has no such pod any more, or it has ended.
func (e *Engine) handleTokenDeleted(key string) {
	if k, err := wire.ParsePodTokenKey(key); err == nil {
		e.clearDesiredObject(tokenObjectKey(k))
	}
}

// keepUnsentTokens adds to what a pod's Secret is to hold the tokens in it that the hub has not
// sent: it could not have them, and no volume of the pod could be made without. They
// are those that the pod reads while it is in the spoke; all else goes.
func (e *Engine) keepUnsentTokens(key wire.PodObjectKey, found, want *objectCopy) {
	if key.Kind != kindToken {
		return
	}
	data := maps.Clone(want.object.Data) // which others read
	for _, name := range e.tokensRead(key) {
		token, had := found.object.Data[name]
		if _, sent := data[name]; had && !sent {
			data[name] = token
		}
	}
	want.object.Data = data
}

// tokensRead are the names of the tokens that the pod reads whose Secret it is. It goes
// by the pod in the spoke: the hub may tell of it later than of its tokens.
func (e *Engine) tokensRead(key wire.PodObjectKey) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	o, ok := e.objects[key]
	if !ok {
		return nil
	}
	for _, en := range e.podsUsing(o) {
		if en.live != nil && string(en.live.hubUID) == key.Name {
			return translate.TokensRead(&en.live.pod.Spec, en.live.hubUID)
		}
	}
	return nil
}

// copyNamespacedName is where the copy of an object is in the spoke.
func (e *Engine) copyNamespacedName(key wire.PodObjectKey) namespacedName {
	return namespacedName{Namespace: e.cfg.Prefix + key.Namespace, Name: copyName(key)}
}

func copyName(key wire.PodObjectKey) string {
	switch {
	case key.Kind == kindToken:
		return translate.TokenSecret(types.UID(key.Name))
	case key.Kind == wire.PodObjectConfigMap && key.Name == podrefs.RootCA:
		return translate.HubRootCA
	default:
		return key.Name
	}
}

// referencedCopies are the objects that a pod in the spoke refers to, as they are called on
// the hub. What the spoke's admission put in is not ours.
func referencedCopies(pod *corev1.Pod, namespace string) []wire.PodObjectKey {
	return copyKeys(podrefs.Of(pod), namespace)
}

// requiredCopies is referencedCopies for a pod that is to be made. All that it names is seen to before
// it is there to read it, whatever volume that is in.
func requiredCopies(pod *corev1.Pod, namespace string) []wire.PodObjectKey {
	return copyKeys(podrefs.BeforeAdmission(pod), namespace)
}

// copyKeys is the inverse of copyName.
func copyKeys(refs []podrefs.Ref, namespace string) []wire.PodObjectKey {
	keys := objectKeys(refs, namespace)
	for i := range keys {
		key := &keys[i]
		uid, isToken := translate.TokenSecretUID(key.Name)
		switch {
		case key.Kind == wire.PodObjectSecret && isToken:
			key.Kind, key.Name = kindToken, string(uid)
		case key.Kind == wire.PodObjectConfigMap && key.Name == translate.HubRootCA:
			key.Name = podrefs.RootCA
		}
	}
	return keys
}

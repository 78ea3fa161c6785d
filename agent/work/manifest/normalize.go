// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// controllerAnnotations are written by Kubernetes' own controllers, each time anew: who
// applies one that "kubectl get -o yaml" printed is in a fight without end. Those that
// end in a slash are all of a prefix.
var controllerAnnotations = []string{
	"autoscaling.alpha.kubernetes.io/",
	"control-plane.alpha.kubernetes.io/leader",
	"deployment.kubernetes.io/",
	"deprecated.daemonset.template.generation",
	"endpoints.kubernetes.io/last-change-trigger-time",
	"pv.kubernetes.io/",
	"volume.beta.kubernetes.io/storage-provisioner",
	"volume.kubernetes.io/selected-node",
	"volume.kubernetes.io/storage-provisioner",
}

// isControllerAnnotation tells whether an annotation is one of those.
func isControllerAnnotation(key string) bool {
	return slices.ContainsFunc(controllerAnnotations, func(a string) bool {
		return key == a || strings.HasSuffix(a, "/") && strings.HasPrefix(key, a)
	})
}

// OmittedFields names the fields of a manifest that are not applied, and that whoever wrote it
// may miss: they belong to another cluster, or to Kubernetes.
func (m Manifest) OmittedFields() []string {
	mentions := func(text string) bool { return bytes.Contains(m.Raw, []byte(text)) }
	if !mentions(`"ownerReferences"`) && !slices.ContainsFunc(controllerAnnotations, mentions) {
		return nil // most need no decoding here
	}
	obj, err := Decode(m.Raw)
	if err != nil {
		return nil
	}
	meta, _ := obj["metadata"].(map[string]any)
	return trimMetadata(meta)
}

// trimMetadata takes from an object's metadata what is not applied, and returns what is worth to
// be named of it. UIDs of owners are those of the cluster that the manifest comes from: a
// garbage collector takes an object of unknown owners for one whose owners are gone.
func trimMetadata(meta map[string]any) (named []string) {
	for _, field := range []string{
		"uid", "resourceVersion", "generation", "managedFields", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink",
	} {
		delete(meta, field)
	}
	if refs, ok := meta["ownerReferences"].([]any); ok && len(refs) > 0 {
		named = append(named, "metadata.ownerReferences")
	}
	delete(meta, "ownerReferences")
	annotations, _ := meta["annotations"].(map[string]any)
	for key := range annotations {
		if isControllerAnnotation(key) {
			named = append(named, "metadata.annotations["+key+"]")
			delete(annotations, key)
		}
	}
	slices.Sort(named)
	return named
}

// normalize writes fields under the names under which an API server stores them. Under
// another name nobody could tell that somebody changed or removed one.
func normalize(obj map[string]any) {
	if obj["apiVersion"] == "v1" && obj["kind"] == "Secret" {
		normalizeSecret(obj)
	}
	for _, path := range podSpecs {
		spec, ok, err := unstructured.NestedFieldNoCopy(obj, path...)
		if pod, is := spec.(map[string]any); is && ok && err == nil {
			normalizePodSpec(pod)
		}
	}
}

// podSpecs is where the kinds of Kubernetes that run pods have the spec of these. In
// other kinds a field of the name means something else.
var podSpecs = [][]string{{"spec"}, {"spec", "template", "spec"}, {"spec", "jobTemplate", "spec", "template", "spec"}}

// normalizePodSpec: an API server keeps both names in step, and goes by the second.
func normalizePodSpec(pod map[string]any) {
	_, isPod := pod["containers"].([]any)
	old, isString := pod["serviceAccount"].(string)
	if !isPod || !isString {
		return
	}
	delete(pod, "serviceAccount")
	if pod["serviceAccountName"] == nil {
		pod["serviceAccountName"] = old
	}
}

// normalizeSecret puts stringData where the API server puts it. What is no string is left
// for the API server to refuse.
func normalizeSecret(obj map[string]any) {
	plain, ok := obj["stringData"].(map[string]any)
	if !ok {
		return
	}
	data, ok := obj["data"].(map[string]any)
	if !ok && obj["data"] != nil {
		return
	}
	for _, value := range plain {
		if _, ok := value.(string); !ok {
			return
		}
	}
	if data == nil {
		data = map[string]any{}
	}
	for key, value := range plain {
		data[key] = base64.StdEncoding.EncodeToString([]byte(value.(string))) //nolint:forcetypeassert // checked above
	}
	obj["data"] = data
	delete(obj, "stringData")
}

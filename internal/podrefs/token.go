// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package podrefs

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	// defaultExpiration is that of a source that names none, in seconds.
	defaultExpiration = 3600

	// A token's name is namePrefix, and nameBytes of a hash in hex.
	namePrefix = "token-"
	nameBytes  = 8
)

// Token is a token of the pod's service account that a pod asks for.
type Token struct {
	// Name stands for what is asked for: sources that ask for the same share one.
	Name string
	// Audience is empty for that of the API server.
	Audience          string
	ExpirationSeconds int64
}

// Tokens returns what the projected volumes of a pod ask for, those of admission
// among them, sorted by name.
func Tokens(spec *corev1.PodSpec) []Token {
	var out []Token
	for i := range spec.Volumes {
		projected := spec.Volumes[i].Projected
		if projected == nil {
			continue
		}
		for j := range projected.Sources {
			if t := projected.Sources[j].ServiceAccountToken; t != nil {
				out = append(out, TokenOf(t))
			}
		}
	}
	slices.SortFunc(out, func(a, b Token) int { return cmp.Compare(a.Name, b.Name) })
	return slices.Compact(out)
}

// TokenOf is what one source asks for.
func TokenOf(source *corev1.ServiceAccountTokenProjection) Token {
	t := Token{Audience: source.Audience, ExpirationSeconds: defaultExpiration}
	if source.ExpirationSeconds != nil {
		t.ExpirationSeconds = *source.ExpirationSeconds
	}
	sum := sha256.Sum256([]byte(strconv.FormatInt(t.ExpirationSeconds, 10) + " " + t.Audience))
	t.Name = namePrefix + hex.EncodeToString(sum[:nameBytes])
	return t
}

// IsTokenName reports whether a name may be that of a [Token].
func IsTokenName(name string) bool {
	hash, ok := strings.CutPrefix(name, namePrefix)
	sum, err := hex.DecodeString(hash)
	return ok && err == nil && len(sum) == nameBytes && hash == hex.EncodeToString(sum)
}

// WithTokens is [Of] for a pod that talks to the cluster which issues its tokens: it
// refers to that cluster's [RootCA] as well.
func WithTokens(pod *corev1.Pod) []Ref {
	c := collect(pod)
	injected := TokenVolumes(&pod.Spec)
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if !slices.Contains(injected, v.Name) {
			continue
		}
		for j := range v.Projected.Sources {
			if s := v.Projected.Sources[j].ConfigMap; s != nil && s.Name == RootCA {
				c.projection(&v.Projected.Sources[j])
			}
		}
	}
	return c.sorted()
}

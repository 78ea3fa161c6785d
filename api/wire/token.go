// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// PodTokensMax is how many tokens a pod may ask for.
	PodTokensMax = 32
	// PodTokensMaxBytes bounds the tokens of a pod, encoded: a Secret has to take them.
	PodTokensMaxBytes = 512 << 10
)

// PodTokenKey names the tokens of one pod of the hub: one that comes later under the
// same name has others.
type PodTokenKey struct {
	PodKey
	UID string
}

// String is the key in Sync: "<namespace>/<pod>/<UID>".
func (k PodTokenKey) String() string { return k.PodKey.String() + "/" + k.UID }

// ParsePodTokenKey is the inverse of String. The UID is a label, in the sense of DNS.
func ParsePodTokenKey(s string) (PodTokenKey, error) {
	i := strings.LastIndexByte(s, '/')
	if i < 0 || len(validation.IsDNS1123Label(s[i+1:])) > 0 {
		return PodTokenKey{}, fmt.Errorf("key %.256q is not namespace/name/uid: %w", s, ErrInvalidPod)
	}
	pod, err := ParsePodKey(s[:i])
	return PodTokenKey{PodKey: pod, UID: s[i+1:]}, err
}

// PodToken is the tokens of the hub's service account that one pod runs as, under the
// names of podref.Token: all that it asks for, until it is in its cluster. Then those
// that are not here could not be had, and an agent keeps what it has of them. The hub
// sends none to an agent that does not ask for the kind, and withdraws them with the
// end of the pod.
type PodToken struct {
	Tokens map[string]string `json:"tokens"`
}

// Encode is the inverse of [DecodePodToken]. Errors hold no token.
func (t PodToken) Encode() ([]byte, error) {
	body, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encode tokens of a pod: %w", ErrInvalidPod)
	}
	return body, t.check(body)
}

// DecodePodToken reads the body of a [KindPodToken]. Errors hold no token.
func DecodePodToken(body []byte) (PodToken, error) {
	var t PodToken
	if len(body) <= PodTokensMaxBytes && json.Unmarshal(body, &t) != nil {
		// The error of the decoder would quote what is secret.
		return PodToken{}, fmt.Errorf("decode tokens of a pod: %w", ErrInvalidPod)
	}
	if err := t.check(body); err != nil {
		return PodToken{}, err
	}
	return t, nil
}

func (t PodToken) check(body []byte) error {
	if len(body) > PodTokensMaxBytes {
		return fmt.Errorf("%d bytes of tokens are more than %d: %w", len(body), PodTokensMaxBytes, ErrInvalidPod)
	}
	if n := len(t.Tokens); n == 0 || n > PodTokensMax {
		return fmt.Errorf("%d tokens are not between 1 and %d: %w", n, PodTokensMax, ErrInvalidPod)
	}
	for name, token := range t.Tokens {
		if len(validation.IsDNS1123Label(name)) > 0 || token == "" {
			return fmt.Errorf("token of a pod without a name, or name without a token: %w", ErrInvalidPod)
		}
	}
	return nil
}

// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package requester

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrUnknown: nobody is recorded, or not in a form that can be read, or not since the
// webhook is registered as it is.
var ErrUnknown = errors.New("who asked for it is not recorded")

// ErrExtra: more is known of a user than can be recorded.
var ErrExtra = errors.New("extra of the user is too large")

const (
	// AnnotationExtra has what a user is beside name and groups, as JSON. An authorizer of
	// the hub may narrow by it what the user may do, as OpenShift does by the scopes of a
	// token.
	AnnotationExtra = "spokelet.io/author-extra"
	// MaxExtra bounds it, in bytes.
	MaxExtra = 8 << 10
	// ofCredential is the domain of what Kubernetes itself says of a credential: its
	// identifier, pod and node. It narrows no right, is another with each token, and would
	// make each request another author.
	ofCredential = "authentication.kubernetes.io/"

	// maxEncoded bounds what is read of an annotation, in bytes.
	maxEncoded = 128 << 10
)

// Keys are the names of the annotations.
type Keys struct {
	// User has the base64 of the name, Groups that of the groups, joined by commas.
	User, Groups string
}

// All are the names of all annotations that say who is an author.
func (k Keys) All() []string {
	return []string{k.User, k.Groups, AnnotationExtra, AnnotationRegistration}
}

// The annotations of the two families of APIs.
var (
	MCM = Keys{User: "mcm.ibm.com/user-identity", Groups: "mcm.ibm.com/user-group"}
	ACM = Keys{User: "acm.io/user-identity", Groups: "acm.io/user-group"}
)

// Author is a user of the hub, as its API server authenticated it.
type Author struct {
	User   string
	Groups []string
	// Extra is what else the authenticator said of the user, without what is of the
	// credential alone. The hub's authorizers are asked with it; it does not travel to
	// clusters, whose owners give rights to names and groups.
	Extra map[string][]string
}

// New is the author that a user is. The error wraps ErrExtra: a part of it might be what
// narrows the user's rights, so that none is left out.
func New(user string, groups []string, extra map[string][]string) (Author, error) {
	a := Author{User: user, Groups: groups, Extra: maps.Clone(extra)}
	maps.DeleteFunc(a.Extra, func(key string, _ []string) bool { return strings.HasPrefix(key, ofCredential) })
	if n := len(a.extra()); n > MaxExtra {
		return Author{}, fmt.Errorf("%w: user %q has %d bytes of it, the limit is %d", ErrExtra, user, n, MaxExtra)
	}
	return a, nil
}

// extra is the JSON of Extra, the same for the same; "" for none.
func (a Author) extra() string {
	if len(a.Extra) == 0 {
		return ""
	}
	raw, err := json.Marshal(a.Extra)
	if err != nil {
		return "" // strings have one
	}
	return string(raw)
}

// Annotations are what is recorded of an author. A group that has a comma in its name is
// left out: it would be read as two. registration is the UID of the one in force.
func (a Author) Annotations(k Keys, registration string) map[string]string {
	groups := make([]string, 0, len(a.Groups))
	for _, g := range a.Groups {
		if g != "" && !strings.Contains(g, ",") {
			groups = append(groups, g)
		}
	}
	out := map[string]string{
		k.User:   base64.StdEncoding.EncodeToString([]byte(a.User)),
		k.Groups: base64.StdEncoding.EncodeToString([]byte(strings.Join(groups, ","))),

		AnnotationRegistration: registration,
	}
	if extra := a.extra(); extra != "" {
		out[AnnotationExtra] = extra
	}
	return out
}

// Of reads the author of an object: who was recorded under the registration in force, of
// which this is the UID. Without one, "", nobody was. The error wraps ErrUnknown.
func Of(obj metav1.Object, k Keys, registration string) (Author, error) {
	annotations := obj.GetAnnotations()
	_, recorded := annotations[k.User]
	switch {
	case registration == "":
		return Author{}, fmt.Errorf("%w: the hub's webhook is not registered, or may fail without stopping a write", ErrUnknown)
	case recorded && annotations[AnnotationRegistration] != registration:
		return Author{}, fmt.Errorf("%w: it was written while the hub's webhook was not registered as it is now; "+
			"change its spec, or remove the annotation %s", ErrUnknown, k.User)
	}
	user, err := decode(annotations[k.User])
	if err != nil {
		return Author{}, err
	}
	if user == "" {
		return Author{}, fmt.Errorf("%w: change its spec", ErrUnknown)
	}
	groups, err := decode(annotations[k.Groups])
	if err != nil {
		return Author{}, err
	}
	a := Author{User: user}
	for g := range strings.SplitSeq(groups, ",") {
		if g != "" {
			a.Groups = append(a.Groups, g)
		}
	}
	extra := annotations[AnnotationExtra]
	if len(extra) > MaxExtra || extra != "" && json.Unmarshal([]byte(extra), &a.Extra) != nil {
		return Author{}, fmt.Errorf("annotation %s is not readable: %w", AnnotationExtra, ErrUnknown)
	}
	return a, nil
}

func decode(encoded string) (string, error) {
	if len(encoded) > maxEncoded {
		return "", fmt.Errorf("annotation of %d bytes: %w", len(encoded), ErrUnknown)
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return "", fmt.Errorf("annotation is no base64: %w", ErrUnknown)
	}
	return string(raw), nil
}

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

// ErrExtraTooLarge: more is known of a user than can be recorded.
var ErrExtraTooLarge = errors.New("extra of the user is too large")

const (
	// AnnotationExtra has what a user is beside name and groups, as JSON. An authorizer of
	// the hub may narrow by it what the user may do, as OpenShift does by the scopes of a
	// token.
	AnnotationExtra = "spokelet.io/author-extra"
	// MaxExtra bounds it, in bytes.
	MaxExtra = 8 << 10
	// credentialKeyPrefix is the domain of what Kubernetes itself says of a credential: its
	// identifier, pod and node. It narrows no right, is another with each token, and would
	// make each request another author.
	credentialKeyPrefix = "authentication.kubernetes.io/"

	// maxAnnotation bounds what is read of an annotation, in bytes.
	maxAnnotation = 128 << 10
)

// AnnotationKeys are the names of the annotations.
type AnnotationKeys struct {
	// User has the base64 of the name, Groups that of the groups, joined by commas.
	User, Groups string
}

// All are the names of all annotations that say who is an author.
func (k AnnotationKeys) All() []string {
	return []string{k.User, k.Groups, AnnotationExtra, AnnotationRegistration}
}

// The annotations of the two families of APIs.
var (
	MCM = AnnotationKeys{User: "mcm.ibm.com/user-identity", Groups: "mcm.ibm.com/user-group"}
	ACM = AnnotationKeys{User: "acm.io/user-identity", Groups: "acm.io/user-group"}
)

// User is a user of the hub, as its API server authenticated it.
type User struct {
	User   string
	Groups []string
	// Extra is what else the authenticator said of the user, without what is of the
	// credential alone. The hub's authorizers are asked with it; it does not travel to
	// clusters, whose owners give rights to names and groups.
	Extra map[string][]string
}

// NewUser is the author that a user is. The error wraps ErrExtraTooLarge: a part of it might be what
// narrows the user's rights, so that none is left out.
func NewUser(user string, groups []string, extra map[string][]string) (User, error) {
	a := User{User: user, Groups: groups, Extra: maps.Clone(extra)}
	maps.DeleteFunc(a.Extra, func(key string, _ []string) bool { return strings.HasPrefix(key, credentialKeyPrefix) })
	if n := len(a.encodeExtra()); n > MaxExtra {
		return User{}, fmt.Errorf("%w: user %q has %d bytes of it, the limit is %d", ErrExtraTooLarge, user, n, MaxExtra)
	}
	return a, nil
}

// encodeExtra is the JSON of Extra, the same for the same; "" for none.
func (a User) encodeExtra() string {
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
func (a User) Annotations(k AnnotationKeys, registration string) map[string]string {
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
	if extra := a.encodeExtra(); extra != "" {
		out[AnnotationExtra] = extra
	}
	return out
}

// FromObject reads the author of an object: who was recorded under the registration in force, of
// which this is the UID. Without one, "", nobody was. The error wraps ErrUnknown.
func FromObject(obj metav1.Object, k AnnotationKeys, registration string) (User, error) {
	annotations := obj.GetAnnotations()
	_, recorded := annotations[k.User]
	switch {
	case registration == "":
		return User{}, fmt.Errorf("%w: the hub's webhook is not registered, or may fail without stopping a write", ErrUnknown)
	case recorded && annotations[AnnotationRegistration] != registration:
		return User{}, fmt.Errorf("%w: it was written while the hub's webhook was not registered as it is now; "+
			"change its spec, or remove the annotation %s", ErrUnknown, k.User)
	}
	user, err := decodeAnnotation(annotations[k.User])
	if err != nil {
		return User{}, err
	}
	if user == "" {
		return User{}, fmt.Errorf("%w: change its spec", ErrUnknown)
	}
	groups, err := decodeAnnotation(annotations[k.Groups])
	if err != nil {
		return User{}, err
	}
	a := User{User: user}
	for g := range strings.SplitSeq(groups, ",") {
		if g != "" {
			a.Groups = append(a.Groups, g)
		}
	}
	extra := annotations[AnnotationExtra]
	if len(extra) > MaxExtra || extra != "" && json.Unmarshal([]byte(extra), &a.Extra) != nil {
		return User{}, fmt.Errorf("annotation %s is not readable: %w", AnnotationExtra, ErrUnknown)
	}
	return a, nil
}

func decodeAnnotation(encoded string) (string, error) {
	if len(encoded) > maxAnnotation {
		return "", fmt.Errorf("annotation of %d bytes: %w", len(encoded), ErrUnknown)
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return "", fmt.Errorf("annotation is no base64: %w", ErrUnknown)
	}
	return string(raw), nil
}

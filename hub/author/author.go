// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package author

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrUnknown: nobody is recorded, or not in a form that can be read, or not since the
// webhook is registered as it is.
var ErrUnknown = errors.New("who asked for it is not recorded")

// maxEncoded bounds what is read of an annotation, in bytes.
const maxEncoded = 128 << 10

// Keys are the names of the annotations.
type Keys struct {
	// User has the base64 of the name, Groups that of the groups, joined by commas.
	User, Groups string
}

// All are the names of all annotations that say who is an author.
func (k Keys) All() []string { return []string{k.User, k.Groups, AnnotationRegistration} }

// The annotations of the two families of APIs.
var (
	MCM = Keys{User: "mcm.ibm.com/user-identity", Groups: "mcm.ibm.com/user-group"}
	ACM = Keys{User: "acm.io/user-identity", Groups: "acm.io/user-group"}
)

// Author is a user of the hub, as its API server authenticated it.
type Author struct {
	User   string
	Groups []string
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
	return map[string]string{
		k.User:   base64.StdEncoding.EncodeToString([]byte(a.User)),
		k.Groups: base64.StdEncoding.EncodeToString([]byte(strings.Join(groups, ","))),

		AnnotationRegistration: registration,
	}
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

// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/spokelet/spokelet/agent/helm/message"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// Annotation is the annotation of an object that an action has written: "<UID>/<generation>" of
// the action on the hub. The record of a release has a label of this name.
const Annotation = message.Label

var errIdentity = errors.New("UID or generation is not valid")

// request is one version of an action, as the hub sent it.
type request struct {
	key        string
	uid        string
	generation int64
	action     wire.Action
	// invalid is the error of an action that cannot be decoded.
	invalid error
	// received is the time of arrival.
	received time.Time
	// answered is set when the result is published and the action dropped.
	answered bool
}

func decodeRequest(version resource.Resource) request {
	r := request{key: version.Key, uid: version.UID, generation: version.Generation, received: time.Now()}
	if len(validation.IsDNS1123Label(r.uid)) > 0 || r.generation < 0 {
		r.invalid = fmt.Errorf("action of UID %.64q, generation %d: %w", r.uid, r.generation, errIdentity)
		return r
	}
	r.action, r.invalid = wire.DecodeAction(version.Body)
	return r
}

// queueKind is what is executed beside each other.
type queueKind int

const (
	objectQueue queueKind = iota
	releaseQueue
)

// queue is that of the action.
func (r request) queue() queueKind {
	if r.action.Release != nil {
		return releaseQueue
	}
	return objectQueue
}

// annotationValue is the value of the annotation.
func (r request) annotationValue() string { return r.uid + "/" + strconv.FormatInt(r.generation, 10) }

// entryName returns the name of the action's ConfigMap. No two actions share one: a UID is a DNS
// label, and a generation is not negative.
func (r request) entryName() string {
	return "action-" + r.uid + "-" + strconv.FormatInt(r.generation, 10)
}

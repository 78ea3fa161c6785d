// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// eventRecorder tells people by events what happened to an object.
type eventRecorder struct{ recorder events.EventRecorder }

func (t eventRecorder) normal(on client.Object, reason, message string) {
	t.recorder.Eventf(on, nil, corev1.EventTypeNormal, reason, reason, "%s", truncateNote(message))
}

func (t eventRecorder) warning(on client.Object, reason, message string) {
	t.recorder.Eventf(on, nil, corev1.EventTypeWarning, reason, reason, "%s", truncateNote(message))
}

// maxNote bounds the note of an event, which events.k8s.io limits to 1 KiB.
const maxNote = 1000

func truncateNote(message string) string {
	if len(message) <= maxNote {
		return message
	}
	return strings.ToValidUTF8(message[:maxNote], "")
}

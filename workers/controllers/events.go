// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/workers/truncate"
)

// eventRecorder records events of objects.
type eventRecorder struct{ recorder events.EventRecorder }

func (t eventRecorder) normal(on client.Object, reason, message string) {
	t.recorder.Eventf(on, nil, corev1.EventTypeNormal, reason, reason, "%s", truncate.Text(message, maxNote))
}

func (t eventRecorder) warning(on client.Object, reason, message string) {
	t.recorder.Eventf(on, nil, corev1.EventTypeWarning, reason, reason, "%s", truncate.Text(message, maxNote))
}

// maxNote bounds the note of an event, which events.k8s.io limits to 1 KiB.
const maxNote = 1000

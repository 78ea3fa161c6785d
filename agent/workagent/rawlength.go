// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/feedback"
)

var errNoMaxLength = errors.New("the schema does not say")

// limitRawLength is the length that was asked for, or what the hub's ManifestWork has
// room for: a longer value would have the whole status refused. Where the hub
// does not tell, it is supposed to have OCM's definition.
func limitRawLength(ctx context.Context, hub rest.Interface, asked int32, log logr.Logger) int {
	most, err := readMaxRawLength(ctx, hub)
	if err != nil {
		most = feedback.DefaultMaxRawLength
	}
	if int(asked) <= most {
		return int(asked)
	}
	log.Info("feedback is shorter than was asked for: the hub's ManifestWork has no room", "asked", asked, "used", most)
	return most
}

// readMaxRawLength reads, from the OpenAPI document that everybody may read, the
// length of the longest jsonRaw.
func readMaxRawLength(ctx context.Context, hub rest.Interface) (int, error) {
	gv := workv1.GroupVersion
	body, err := hub.Get().AbsPath("/openapi/v3/apis/"+gv.Group+"/"+gv.Version).SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the schema of ManifestWork: %w", err)
	}
	var document struct {
		Components struct {
			Schemas map[string]map[string]any `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(body, &document); err != nil {
		return 0, fmt.Errorf("decode the schema of ManifestWork: %w", err)
	}
	for _, schema := range document.Components.Schemas {
		if length, ok := findMaxRawLength(schema); ok {
			return length, nil
		}
	}
	return 0, errNoMaxLength
}

// findMaxRawLength follows the one path on which jsonRaw lies; "" goes to the items of a
// list.
func findMaxRawLength(schema map[string]any) (int, bool) {
	for _, name := range []string{"status", "resourceStatus", "manifests", "", "statusFeedback", "values", "", "fieldValue", "jsonRaw"} {
		next := schema["items"]
		if name != "" {
			properties, _ := schema["properties"].(map[string]any)
			next = properties[name]
		}
		schema, _ = next.(map[string]any)
	}
	length, ok := schema["maxLength"].(float64)
	return int(length), ok && length > 0
}

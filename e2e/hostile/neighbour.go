// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/hack/clusters/image"
)

const (
	// neighbourhood is the namespace of the hub's cluster that attacks come from.
	neighbourhood = "neighbours"
	// neighbourPods is how many addresses they come from.
	neighbourPods = 4
)

// loadNeighbour makes the image of the neighbours known to the hub's nodes.
func (s *Site) loadNeighbour(ctx context.Context) error {
	binary, err := s.env.Build.Tool(ctx, "hostile")
	if err != nil {
		return err
	}
	s.image = "spokelet.io/hostile:" + s.env.Build.Version
	archive := filepath.Join(filepath.Dir(binary), "hostile.tar")
	spec := image.Spec{
		Ref:   s.image,
		Files: []image.File{{Path: "/hostile", Source: binary, Mode: 0o755}}, Entrypoint: []string{"/hostile"}, User: "65532:65532",
	}
	if err := image.Write(archive, spec); err != nil {
		return fmt.Errorf("image of the neighbour: %w", err)
	}
	if err := s.env.Set.Hub().LoadImage(ctx, archive); err != nil {
		return fmt.Errorf("image of the neighbour: %w", err)
	}
	return nil
}

// neighbours has pods in the hub's cluster attack it, as the program hostile does
// under that name.
func (s *Site) neighbours(attack string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		service, err := s.kube.CoreV1().Services(env.HubNamespace).Get(ctx, "spokelet-hub", metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("service of the hub: %w", err)
		}
		ctl := s.env.Kubectl(s.env.Set.Hub()).With("-n", neighbourhood)
		job := fmt.Sprintf(`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":%q},"spec":{"parallelism":%d,"completions":%d,"backoffLimit":0,"activeDeadlineSeconds":%d,
			"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"hostile","image":%q,"args":[%q,%q],"resources":{"limits":{"memory":"256Mi"}}}]}}}}`,
			attack, neighbourPods, neighbourPods, int(maxAttack.Seconds()), s.image, attack, service.Spec.ClusterIP)
		if _, err := ctl.RunInput(ctx, strings.NewReader(job), "create", "-f", "-"); err != nil {
			return "", err
		}
		defer func() {
			// A window may run the attack more than once.
			_, _ = ctl.Run(context.WithoutCancel(ctx), "delete", "job", attack, "--cascade=foreground", "--timeout=30s")
		}()
		if _, err := ctl.Run(ctx, "wait", "--for=condition=Complete", "job/"+attack, "--timeout=60s"); err != nil {
			return "", err
		}
		out, err := ctl.Run(ctx, "logs", "-l", "job-name="+attack, "--tail=-1")
		return strings.Join(strings.Split(strings.TrimSpace(out), "\n"), "; "), err
	}
}

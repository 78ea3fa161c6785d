// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spokelet/spokelet/hack/clusters/image"
)

// Build is what the installation is made of.
type Build struct {
	// Root is the top of the checkout.
	Root string
	// Version is linked into the binaries and tags the images.
	Version string
	// Race builds the binaries with the race detector, for tests.
	Race bool
}

// Image names an image and the archive that holds it.
type Image struct {
	Ref     string
	Archive string
}

const registry = "ghcr.io/spokelet/"

// helmBinary is the command that the agent runs beside itself. It has a module of its own.
const helmBinary = "spokelet-helm"

// Binary builds one command of the product and returns its path. The go
// command's own cache makes a repetition cheap.
func (b Build) Binary(ctx context.Context, name string) (string, error) {
	if name == helmBinary {
		return b.helm(ctx)
	}
	out := filepath.Join(b.Root, "bin", b.flavour(), name)
	args := []string{"build", "-trimpath", "-o", out,
		"-ldflags=-s -w -X github.com/spokelet/spokelet/cmd/internal/command.Version=" + b.Version}
	cgo := "CGO_ENABLED=0"
	if b.Race {
		// The race runtime is C; linked statically, it needs no base image.
		args = append(args, "-race")
		args[4] += " -linkmode external -extldflags -static"
		cgo = "CGO_ENABLED=1"
	}
	goTool := Command{Path: "go", Env: []string{cgo}, Dir: b.Root}
	if _, err := goTool.Run(ctx, append(args, "./cmd/"+name)...); err != nil {
		return "", err
	}
	return out, nil
}

// helm builds what the agent runs beside itself. It has no flavour: what is limited in it is
// memory, of which the race detector takes a multiple.
func (b Build) helm(ctx context.Context) (string, error) {
	out := filepath.Join(b.Root, "bin", helmBinary)
	goTool := Command{Path: "go", Env: []string{"CGO_ENABLED=0"}, Dir: filepath.Join(b.Root, "helm")}
	_, err := goTool.Run(ctx, "build", "-trimpath", "-ldflags=-s -w", "-o", out, "./cmd/"+helmBinary)
	return out, err
}

// Tool builds a command of the tests' own, e2e/cmd/<name>, statically, and returns
// its path.
func (b Build) Tool(ctx context.Context, name string) (string, error) {
	out := filepath.Join(b.Root, "bin", name)
	goTool := Command{Path: "go", Env: []string{"CGO_ENABLED=0"}, Dir: filepath.Join(b.Root, "e2e")}
	_, err := goTool.Run(ctx, "build", "-trimpath", "-o", out, "./cmd/"+name)
	return out, err
}

// Example builds the program of examples/<name>, statically, and returns its path.
func (b Build) Example(ctx context.Context, name string) (string, error) {
	out := filepath.Join(b.Root, "bin", name)
	goTool := Command{Path: "go", Env: []string{"CGO_ENABLED=0"}, Dir: filepath.Join(b.Root, "examples", name)}
	_, err := goTool.Run(ctx, "build", "-trimpath", "-o", out, ".")
	return out, err
}

// Image builds the image of one command of the product and returns where it is.
func (b Build) Image(ctx context.Context, name string) (Image, error) {
	binary, err := b.Binary(ctx, name)
	if err != nil {
		return Image{}, err
	}
	files := []image.File{{Path: "/" + name, Source: binary, Mode: 0o755}}
	if name == "spokelet-agent" {
		beside, err := b.Binary(ctx, helmBinary)
		if err != nil {
			return Image{}, err
		}
		files = append(files, image.File{Path: "/" + helmBinary, Source: beside, Mode: 0o755})
	}
	return b.image(name, files)
}

// ToolImage builds the image of a command of the tests' own and returns where it is.
func (b Build) ToolImage(ctx context.Context, name string) (Image, error) {
	binary, err := b.Tool(ctx, name)
	if err != nil {
		return Image{}, err
	}
	return b.image(name, []image.File{{Path: "/" + name, Source: binary, Mode: 0o755}})
}

// image writes the archive of an image that holds some files and runs the one of its name.
func (b Build) image(name string, files []image.File) (Image, error) {
	return b.write(name, []string{"/" + name}, files)
}

// write writes the archive of an image.
func (b Build) write(name string, entrypoint []string, files []image.File) (Image, error) {
	dir := filepath.Join(b.Root, "bin", "images", b.flavour())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Image{}, fmt.Errorf("image %s: %w", name, err)
	}
	img := Image{Ref: registry + name + ":" + b.Tag(), Archive: filepath.Join(dir, name+".tar")}
	spec := image.Spec{
		Ref:        img.Ref,
		Files:      files,
		Entrypoint: entrypoint,
		User:       "65532:65532",
	}
	if err := image.Write(img.Archive, spec); err != nil {
		return Image{}, fmt.Errorf("image %s: %w", name, err)
	}
	return img, nil
}

// Tag is the tag of the images.
func (b Build) Tag() string {
	if b.Race {
		return b.Version + "-race"
	}
	return b.Version
}

func (b Build) flavour() string {
	if b.Race {
		return "race"
	}
	return "plain"
}

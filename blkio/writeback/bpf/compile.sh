#!/bin/sh
# Compiles the programs into a directory, without what differs between machines and versions of the compiler.
set -e
for order in eb el; do
	for name in observer owner; do
		object=$1/${name}_bpf$order.o
		clang -O2 -mcpu=v3 -Wall -Werror -g -target bpf$order -c bpf/$name.bpf.c -o "$object" \
			-fno-ident -fdebug-prefix-map="$PWD"=. -fdebug-compilation-dir .
		llvm-strip -g "$object"
	done
done

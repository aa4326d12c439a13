"""SIMD registers as Numba values.

Numba has no vector type, and LLVM does not keep a small matrix of sums in registers on its own: it
vectorizes one loop at a time. The operations below emit LLVM vector instructions directly, so that
a kernel written as Python loops keeps its sums in registers. A `Vector` is 32 bytes (8 float32 or 4
float64): one AVX register, two NEON or SSE ones; LLVM lowers the same code to the instructions of
the machine.

Arrays are one-dimensional and contiguous and positions count elements: `x[i:]` below is the Vector
at position i. The caller pads its buffers: bounds are checked only if Numba checks them too
(NUMBA_BOUNDSCHECK=1), and a violation aborts the process. A tile is a tuple of Vectors, kept in
registers by the optimizer.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, config, types
from numba.core.codegen import get_host_cpu_features
from numba.core.datamodel import PrimitiveModel
from numba.extending import intrinsic, register_model

BYTES = 32

#: Vector registers of the target machine: 32 with AVX-512VL, otherwise 16.
REGISTERS = (
    32
    if "+avx512vl"
    in (get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES)
    else 16
)


class Vector(types.Type):
    """The Numba type of a register."""

    def __init__(self, dtype):
        self.dtype = dtype
        self.lanes = 8 * BYTES // dtype.bitwidth
        super().__init__(name=f"Vector({dtype}, {self.lanes})")


@register_model(Vector)
class _VectorModel(PrimitiveModel):
    def __init__(self, manager, kind):
        scalar = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}[kind.dtype]
        super().__init__(manager, kind, ir.VectorType(scalar, kind.lanes))


class _Emitter:
    """Emits the instructions of one operation; see `_emitting`."""

    def __init__(self, context, builder, dtype):
        self.context, self.builder, self.dtype = context, builder, dtype
        self.lanes = Vector(dtype).lanes
        self.type = context.get_value_type(Vector(dtype))
        self.zero = ir.Constant(self.type, None)
        self.one = ir.Constant(self.type, [1.0] * self.lanes)

    def address(self, array, position, shift=0, count=1):
        """Pointer to `count` elements at array[position + shift]; array is a (type, value) pair."""
        held = self.context.make_array(array[0])(self.context, self.builder, array[1])
        first = self.builder.add(position, ir.Constant(position.type, shift))
        if config.BOUNDSCHECK:
            self._trap_outside(
                first, self.builder.add(first, ir.Constant(first.type, count)), held.nitems
            )
        return self.builder.gep(held.data, [first])

    def _trap_outside(self, first, end, size):
        """Abort the process unless 0 <= first and end <= size."""
        before = self.builder.icmp_signed("<", first, ir.Constant(first.type, 0))
        beyond = self.builder.icmp_signed(">", end, size)
        with self.builder.if_then(self.builder.or_(before, beyond), likely=False):
            trap = cgutils.get_or_insert_function(
                self.builder.module, ir.FunctionType(ir.VoidType(), []), "llvm.trap"
            )
            self.builder.call(trap, [])

    def scalar(self, array, position, shift=0):
        return self.builder.load(self.address(array, position, shift))

    def load(self, array, position, shift=0):
        pointer = self.builder.bitcast(
            self.address(array, position, shift, self.lanes), self.type.as_pointer()
        )
        return self.builder.load(pointer, align=self.dtype.bitwidth // 8)

    def store(self, array, position, value):
        pointer = self.builder.bitcast(
            self.address(array, position, count=self.lanes), self.type.as_pointer()
        )
        self.builder.store(value, pointer, align=self.dtype.bitwidth // 8)

    def splat(self, scalar):
        first = self.builder.insert_element(self.zero, scalar, ir.Constant(ir.IntType(32), 0))
        return self.shuffle(first, first, [0] * self.lanes)

    def shuffle(self, a, b, lanes):
        return self.builder.shuffle_vector(
            a, b, ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), list(lanes))
        )

    def call(self, name, *args):
        """LLVM's intrinsic of that name on Vectors."""
        suffix = f"v{self.lanes}f{self.dtype.bitwidth}"
        kind = ir.FunctionType(self.type, [self.type] * len(args))
        return self.builder.call(
            cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.{name}.{suffix}"), args
        )

    def fma(self, a, b, c):
        """A b + c, one instruction where the machine has it."""
        return self.call("fmuladd", a, b, c)

    def unpack(self, tile):
        return [self.builder.extract_value(tile, k) for k in range(tile.type.count)]

    def pack(self, vectors):
        tile = ir.Constant(ir.ArrayType(self.type, len(vectors)), ir.Undefined)
        for k, v in enumerate(vectors):
            tile = self.builder.insert_value(tile, v, k)
        return tile


def _literal(kind):
    return kind.literal_value if isinstance(kind, types.IntegerLiteral) else None


def _tile_type(dtype, count):
    return types.UniTuple(Vector(dtype), count)


def _emitting(dtype, signature, write):
    """The result of an intrinsic: its signature and its code generator.

    `write(emit, *args)` receives arrays as (type, value) pairs and returns the result or None.
    """

    def generate(context, builder, sig, args):
        pairs = [
            (t, a) if isinstance(t, types.Array) else a for t, a in zip(sig.args, args, strict=True)
        ]
        result = write(_Emitter(context, builder, dtype), *pairs)
        return context.get_dummy_value() if result is None else result

    return signature, generate


@intrinsic
def lanes(typingctx, x):
    """Number of lanes of a Vector of x's dtype, a compile-time constant."""
    count = Vector(x.dtype).lanes
    return _emitting(
        x.dtype, types.intp(x), lambda emit, x: emit.context.get_constant(types.intp, count)
    )


@intrinsic
def load(typingctx, x, i):
    """x[i:]"""
    return _emitting(x.dtype, Vector(x.dtype)(x, types.intp), lambda emit, x, i: emit.load(x, i))


@intrinsic
def store(typingctx, x, i, v):
    """x[i:] = v"""
    return _emitting(
        x.dtype, types.void(x, types.intp, v), lambda emit, x, i, v: emit.store(x, i, v)
    )


@intrinsic
def splat(typingctx, x, s):
    """The scalar s in every lane, in x's dtype."""
    return _emitting(x.dtype, Vector(x.dtype)(x, x.dtype), lambda emit, x, s: emit.splat(s))


@intrinsic
def add(typingctx, a, b):
    """A + b."""
    return _emitting(a.dtype, a(a, a), lambda emit, a, b: emit.builder.fadd(a, b))


@intrinsic
def mul(typingctx, a, b):
    """A b."""
    return _emitting(a.dtype, a(a, a), lambda emit, a, b: emit.builder.fmul(a, b))


@intrinsic
def fnma(typingctx, a, b, c):
    """C - a b"""
    return _emitting(
        a.dtype, a(a, a, a), lambda emit, a, b, c: emit.fma(emit.builder.fneg(a), b, c)
    )


@intrinsic
def sub(typingctx, a, b):
    """A - b."""
    return _emitting(a.dtype, a(a, a), lambda emit, a, b: emit.builder.fsub(a, b))


@intrinsic
def distance(typingctx, a, eps2):
    """sqrt(a^2 + eps2)"""
    return _emitting(
        a.dtype, a(a, a), lambda emit, a, eps2: emit.call("sqrt", emit.fma(a, a, eps2))
    )


@intrinsic
def clamp(typingctx, a, top):
    """A kept within [0, top]; NaN becomes 0."""

    def write(emit, a, top):
        b = emit.builder
        positive = b.select(b.fcmp_ordered(">", a, emit.zero), a, emit.zero)
        return b.select(b.fcmp_ordered("<", positive, top), positive, top)

    return _emitting(a.dtype, a(a, a), write)


@intrinsic
def inverse_root(typingctx, a, floor):
    """1 / sqrt(a) where a > floor, else 0."""

    def write(emit, a, floor):
        b = emit.builder
        good = b.fcmp_ordered(">", a, floor)
        root = emit.call("sqrt", b.select(good, a, emit.one))
        return b.select(good, b.fdiv(emit.one, root), emit.zero)

    return _emitting(a.dtype, a(a, a), write)


@intrinsic(prefer_literal=True)
def zeros(typingctx, x, count):
    """Tile of `count` zero Vectors (a literal; 0 means one per lane)."""
    if _literal(count) is None:
        return None
    kind = _tile_type(x.dtype, _literal(count) or Vector(x.dtype).lanes)
    return _emitting(
        x.dtype, kind(x, count), lambda emit, x, count: emit.pack([emit.zero] * kind.count)
    )


@intrinsic(prefer_literal=True)
def load_tile(typingctx, x, i, stride, count):
    """Tile of the Vectors x[i + k stride:], k < count (a literal; 0 means one per lane)."""
    if _literal(count) is None:
        return None
    kind = _tile_type(x.dtype, _literal(count) or Vector(x.dtype).lanes)

    def write(emit, x, i, stride, count):
        steps = [emit.builder.mul(stride, ir.Constant(stride.type, k)) for k in range(kind.count)]
        return emit.pack([emit.load(x, emit.builder.add(i, step)) for step in steps])

    return _emitting(x.dtype, kind(x, types.intp, types.intp, count), write)


@intrinsic
def store_tile(typingctx, x, i, stride, tile):
    """x[i + k stride:] = tile[k]"""

    def write(emit, x, i, stride, tile):
        for k, v in enumerate(emit.unpack(tile)):
            emit.store(
                x, emit.builder.add(i, emit.builder.mul(stride, ir.Constant(stride.type, k))), v
            )

    return _emitting(x.dtype, types.void(x, types.intp, types.intp, tile), write)


@intrinsic
def lane_sums(typingctx, tile):
    """Vector of the lane sums of tile[0], tile[1], ...: a tree of pairwise adds."""

    def write(emit, tile):
        vectors, run, n = emit.unpack(tile), 1, emit.lanes
        while len(vectors) > 1:
            low = [k if not k & run else n + k - run for k in range(n)]
            high = [k + run for k in low]
            vectors = [
                emit.builder.fadd(emit.shuffle(a, b, low), emit.shuffle(a, b, high))
                for a, b in zip(vectors[0::2], vectors[1::2], strict=True)
            ]
            run *= 2
        return vectors[0]

    return _emitting(tile.dtype.dtype, tile.dtype(tile), write)


@intrinsic
def transpose(typingctx, tile):
    """Square tile transposed: swaps the off-diagonal blocks of size 1, 2, 4, ..."""

    def write(emit, tile):
        v, n, run = emit.unpack(tile), emit.lanes, 1
        while run < n:
            low = [k if not k & run else n + k - run for k in range(n)]
            high = [k + run for k in low]
            for k in (k for k in range(n) if not k & run):
                v[k], v[k + run] = (
                    emit.shuffle(v[k], v[k + run], low),
                    emit.shuffle(v[k], v[k + run], high),
                )
            run *= 2
        return emit.pack(v)

    return _emitting(tile.dtype.dtype, tile(tile), write)


@intrinsic
def add_products(typingctx, tile, x, offsets, t, column, v):
    """tile[k] + x[offsets[t + k] + column:] v, every k"""

    def write(emit, tile, x, offsets, t, column, v):
        rows = [
            emit.builder.add(emit.scalar(offsets, t, k), column) for k in range(tile.type.count)
        ]
        return emit.pack(
            [emit.fma(emit.load(x, i), v, s) for i, s in zip(rows, emit.unpack(tile), strict=True)]
        )

    return _emitting(x.dtype, tile(tile, x, offsets, types.intp, types.intp, v), write)


@intrinsic
def subtract_products(typingctx, tile, x, i, v):
    """tile[k] - x[i + k lanes:] v, every k"""

    def write(emit, tile, x, i, v):
        minus = emit.builder.fneg(v)
        parts = [emit.load(x, i, k * emit.lanes) for k in range(tile.type.count)]
        return emit.pack(
            [emit.fma(p, minus, s) for p, s in zip(parts, emit.unpack(tile), strict=True)]
        )

    return _emitting(x.dtype, tile(tile, x, types.intp, v), write)


@intrinsic(prefer_literal=True)
def add_outer(typingctx, tile, x, row, column, weight, pull, rows):
    """tile[q, g] + weight x[row + q] x[column + g lanes:], q < rows (a literal).

    Where `pull` is not None the tile has one more row, to which pull x[column + g lanes:] is added.
    """
    if _literal(rows) is None:
        return None
    extra = not isinstance(pull, types.NoneType)
    groups = tile.count // (_literal(rows) + extra)

    def write(emit, tile, x, row, column, weight, pull, _):
        w = emit.splat(weight)
        plain = [emit.load(x, column, g * emit.lanes) for g in range(groups)]
        weighted = [emit.builder.fmul(w, one) for one in plain]
        left = [emit.splat(emit.scalar(x, row, q)) for q in range(_literal(rows))]
        pairs = [(a, b) for a in left for b in weighted]
        pairs += [(emit.splat(pull), b) for b in plain] if extra else []
        return emit.pack(
            [emit.fma(a, b, s) for (a, b), s in zip(pairs, emit.unpack(tile), strict=True)]
        )

    scalar = x.dtype if extra else types.none
    return _emitting(x.dtype, tile(tile, x, types.intp, types.intp, x.dtype, scalar, rows), write)


@intrinsic(prefer_literal=True)
def add_tile(typingctx, x, i, stride, tile, first, rows, groups):
    """x[i + q stride + g lanes:] += tile[first + q, g], q < rows, g < groups (literals)."""
    if None in map(_literal, (first, rows, groups)):
        return None

    def write(emit, x, i, stride, tile, *_):
        vectors = emit.unpack(tile)[_literal(first) * _literal(groups) :]
        for k in range(_literal(rows) * _literal(groups)):
            q, g = divmod(k, _literal(groups))
            step = emit.builder.mul(stride, ir.Constant(stride.type, q))
            at = emit.builder.add(emit.builder.add(i, step), ir.Constant(i.type, g * emit.lanes))
            emit.store(x, at, emit.builder.fadd(emit.load(x, at), vectors[k]))

    return _emitting(
        x.dtype, types.void(x, types.intp, types.intp, tile, first, rows, groups), write
    )


@intrinsic
def call_block(typingctx, address, a, w, n, params):
    """Calls the C function `void f(a*, w*, int64 n, params*)` at an integer address.

    The address is an integer, not a Numba function type, so that the kernel has the same type, and
    the same cached machine code, for every loss.
    """

    def write(emit, address, a, w, n, params):
        zero = ir.Constant(n.type, 0)
        args = [
            emit.address(a, zero),
            emit.address(w, zero),
            n,
            emit.address(params, zero, count=0),
        ]
        kind = ir.FunctionType(ir.VoidType(), [arg.type for arg in args])
        emit.builder.call(emit.builder.inttoptr(address, kind.as_pointer()), args)

    return _emitting(a.dtype, types.void(types.intp, a, w, types.intp, params), write)

-- Every second, in one transaction each: some orders are placed, some are paid, an old one is deleted.
WITH placed AS (
    INSERT INTO orders (customer, amount)
    SELECT 1 + floor(random() * 1000)::bigint, round((random() * 500)::numeric, 2) FROM generate_series(1, 20)
), paid AS (
    UPDATE orders SET status = 'paid'
    WHERE id IN (SELECT id FROM orders WHERE status = 'open' ORDER BY id LIMIT 15)
)
DELETE FROM orders WHERE id IN (SELECT id FROM orders WHERE status = 'paid' ORDER BY id LIMIT 1)
\watch 1
